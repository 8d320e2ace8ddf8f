// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
)

// Check returns what would make the data path fail on this host, and warnings. It loads the
// programs and removes them; packets are not changed.
func Check(cfg Config) (warnings []string, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	common := cfg.frame()
	return common.Check(hostkernel.Requirements{Spec: loadOmnimon, Load: checkPrograms,
		Interface: func(i *net.Interface) ([]string, error) { return checkInterface(&cfg, i) }})
}

// checkPrograms loads the programs with small maps.
func checkPrograms() error {
	s := &wire.Settings{EtherType: header.DefaultEtherType, SlotsPerFlow: header.MaxSlots,
		Extremes: make([]wire.Extreme, header.MaxDifferences)}
	for i := range s.Extremes {
		s.Extremes[i].Field = wire.FieldLength
	}
	t, err := loadSmall(s)
	if err == nil {
		t.close()
	}
	return err
}

// loadSmall loads the programs for headers as settings have them, with small maps and no hosts.
func loadSmall(of *wire.Settings) (*tables, error) {
	s := *of
	s.Slots, s.Shares, s.Hosts = 64, 1, [][]netip.Addr{nil}
	s.Host, s.Flows, s.IngressSlots, s.IdleEpochs = 0, 64, 64, 1
	s.Queries, s.Match = nil, ""
	_, share, err := omnimon.Check(&s)
	if err != nil {
		return nil, err
	}
	return load(&s, share, 4)
}

// checkInterface returns why an interface cannot carry headers, and warnings. The needs follow from
// the settings that were in force last, or else from a plugin's default settings.
func checkInterface(cfg *Config, i *net.Interface) (warnings []string, err error) {
	s := &wire.Settings{Carrier: wire.CarrierOption, SlotsPerFlow: 2}
	known := false
	if text, err := os.ReadFile(cfg.State); err == nil {
		last, err := wire.ParseSettings(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cfg.State, err)
		}
		s, known = last, true
	}
	routes, err := hostkernel.Routes(i)
	if err != nil {
		return nil, err
	}
	v6 := slices.ContainsFunc(routes, func(r hostkernel.Route) bool { return r.V6 })
	found, err := offloads(i.Name, s.Carrier, v6)
	switch {
	case err == nil && len(found) > 0 && cfg.DisableOffloads:
		warnings = append(warnings,
			fmt.Sprintf("interface %s: the agent will turn off %s", i.Name, strings.Join(found, ", ")))
	case err == nil && len(found) > 0:
		err = offloadError(i.Name, s.Carrier, found)
	case err == nil && !known && !cfg.DisableOffloads:
		if found, _ := offloads(i.Name, wire.CarrierShim, v6); len(found) > 0 {
			warnings = append(warnings, fmt.Sprintf("interface %s: if the plugin's carrier is shim, %d offloads must be off: "+
				"packets.disable-offloads: true", i.Name, len(found)))
		}
	}
	if text := checkMTU(s, i, routes); text != "" {
		warnings = append(warnings, text)
	}
	if needsSegments(s) && !cfg.DisableOffloads && hostkernel.Segments(i.Index) != 1 {
		warnings = append(warnings, fmt.Sprintf("interface %s: packets that the kernel segments later get no header with "+
			"these settings, and their flows are not exact: ip link set dev %s gso_max_segs 1", i.Name, i.Name))
	}
	return warnings, err
}

// checkMTU returns a warning if the longest packets of a route leave no room for a header, with the
// commands that make room.
func checkMTU(s *wire.Settings, i *net.Interface, routes []hostkernel.Route) string {
	need := 0
	var commands []string
	for _, r := range routes {
		longest := min(cmp.Or(r.MTU, i.MTU), i.MTU)
		if n := longest + overhead(s, r.V6); n > i.MTU {
			need = max(need, n)
			commands = append(commands, fmt.Sprintf("%s mtu %d", r.Change, longest))
		}
	}
	if need == 0 {
		return ""
	}
	return fmt.Sprintf("interface %s has an MTU of %d bytes: with the carrier %s, IP packets of more than %d bytes "+
		"(IPv6: %d) get no header, and their flows are not exact; TCP between hosts with agents stays below, unless "+
		"clampMss is false. If the network carries longer packets: ip link set dev %s mtu %d; %s", i.Name, i.MTU,
		cmp.Or(s.Carrier, wire.CarrierShim), i.MTU-overhead(s, false), i.MTU-overhead(s, true), i.Name, need,
		strings.Join(commands, "; "))
}

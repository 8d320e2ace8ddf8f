// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

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

// checkInterface returns why an interface cannot carry headers, and warnings.
func checkInterface(cfg *Config, i *net.Interface) (warnings []string, err error) {
	if i.MTU <= 1500 {
		smallest := header.Layout{Slots: 1}.Size()
		warnings = append(warnings, fmt.Sprintf("interface %s has an MTU of %d bytes, and a header has %d to %d: "+
			"longer packets get no header and make epochs inexact. Increase the MTU (ip link set %s mtu %d) "+
			"and keep that of its routes (ip route change … mtu %d)",
			i.Name, i.MTU, smallest, maxHeader, i.Name, i.MTU+maxHeader, i.MTU))
	}
	found, err := offloads(i.Name)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		err = nil
	case err == nil && len(found) > 0 && cfg.DisableOffloads:
		warnings = append(warnings,
			fmt.Sprintf("interface %s: the agent will turn off %s", i.Name, strings.Join(found, ", ")))
	case err == nil && len(found) > 0:
		err = offloadError(i.Name, found)
	}
	return warnings, err
}

// maxHeader is the largest size of a header in bytes.
var maxHeader = header.Layout{Slots: header.MaxSlots, Differences: header.MaxDifferences}.Size()

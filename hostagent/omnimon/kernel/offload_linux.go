// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
)

// offloads returns the active features of an interface that damage packets with a shim, because
// they handle packets after program egress and by their EtherType: segmentation by the device,
// which would have to repeat the header, and checksums of IPv4 and IPv6 only. Segmentation by the
// kernel repeats the header.
func offloads(name string) ([]string, error) {
	active, err := hostkernel.Features(name)
	return slices.DeleteFunc(active, func(feature string) bool { return !harmful(feature) }), err
}

func harmful(feature string) bool {
	switch feature {
	case "tx-generic-segmentation":
		return false
	case "tx-checksum-ipv4", "tx-checksum-ipv6", "tx-checksum-sctp", "tx-gso-list":
		return true
	}
	return strings.HasPrefix(feature, "tx-") && strings.HasSuffix(feature, "-segmentation")
}

// prepare checks the features of the interface, and turns off those that do harm if the
// configuration says so.
func (p *Path) prepare(s *wire.Settings) error {
	if p.cfg.Interface == "" {
		return nil
	}
	var found []string
	if s.Carrier == wire.CarrierShim || s.Carrier == "" {
		var err error
		found, err = offloads(p.cfg.Interface)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return nil // a device without features
		}
		if err != nil {
			return err
		}
	}
	if len(found) > 0 {
		if !p.cfg.DisableOffloads {
			return offloadError(p.cfg.Interface, found)
		}
		if err := hostkernel.Disable(p.cfg.Interface, found); err != nil {
			return err
		}
		found, err := offloads(p.cfg.Interface)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			return fmt.Errorf("interface %s does not turn off %s", p.cfg.Interface, strings.Join(found, ", "))
		}
	}
	if p.cfg.DisableOffloads && (len(s.Extremes) > 0 || s.Match != "" ||
		omnimon.ParseQueries(s, omnimon.Queries{}).Use("payload")) {
		i, err := net.InterfaceByName(p.cfg.Interface)
		if err != nil {
			return err
		}
		if err := hostkernel.LimitSegments(i.Index, 1); err != nil {
			return fmt.Errorf("interface %s: gso_max_segs: %w", p.cfg.Interface, err)
		}
	}
	return nil
}

func offloadError(name string, found []string) error {
	return fmt.Errorf("interface %s has %s on, which assume that IP follows Ethernet: "+
		"turn them off with ethtool -K %s %s off, or let the agent do it",
		name, strings.Join(found, ", "), name, strings.Join(found, " off "))
}

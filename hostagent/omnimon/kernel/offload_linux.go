// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
)

// offloads returns the active features of an interface that damage packets with a carrier.
func offloads(name string, carrier wire.Carrier, v6 bool) ([]string, error) {
	active, err := hostkernel.Features(name)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // a device without features
	}
	return slices.DeleteFunc(active, func(feature string) bool { return !harmful(feature, carrier, v6) }), err
}

// harmful reports whether a feature damages packets with a carrier, because it handles packets
// after program egress. With a shim these are segmentation by the device, which would have to
// repeat the header, and checksums of IPv4 and IPv6 only. Segmentation by the kernel repeats the
// header. With an option in IPv6 it is the feature for checksums of IPv6, which by definition does
// not know extension headers. Packets in a tunnel are segmented by the kernel unless the device
// knows the tunnel.
func harmful(feature string, carrier wire.Carrier, v6 bool) bool {
	switch carrier {
	case wire.CarrierOption:
		return v6 && feature == "tx-checksum-ipv6"
	case wire.CarrierTunnel:
		return false
	}
	switch feature {
	case "tx-generic-segmentation":
		return false
	case "tx-checksum-ipv4", "tx-checksum-ipv6", "tx-checksum-sctp", "tx-gso-list":
		return true
	}
	return strings.HasPrefix(feature, "tx-") && strings.HasSuffix(feature, "-segmentation")
}

// needsSegments reports whether settings need each segment of a packet that the kernel or the
// device segments later. If so, such packets get no header.
func needsSegments(s *wire.Settings) bool {
	return len(s.Extremes) > 0 || s.Match != "" || omnimon.ParseQueries(s, omnimon.Queries{}).Use("payload")
}

// prepare checks the features of the interface, and turns off harmful features if the configuration
// says so.
func (p *Path) prepare(s *wire.Settings) error {
	if p.cfg.Interface == "" {
		return nil
	}
	v6 := slices.ContainsFunc(s.Hosts[s.Host], netip.Addr.Is6)
	found, err := offloads(p.cfg.Interface, s.Carrier, v6)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		if !p.cfg.DisableOffloads {
			return offloadError(p.cfg.Interface, s.Carrier, found)
		}
		if err := hostkernel.Disable(p.cfg.Interface, found); err != nil {
			return err
		}
		found, err := offloads(p.cfg.Interface, s.Carrier, v6)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			return fmt.Errorf("interface %s does not turn off %s", p.cfg.Interface, strings.Join(found, ", "))
		}
	}
	if p.cfg.DisableOffloads && needsSegments(s) {
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

func offloadError(name string, carrier wire.Carrier, found []string) error {
	return fmt.Errorf("interface %s has %s on, which damage packets with the carrier %s: "+
		"turn them off with ethtool -K %s %s off, or let the agent do it (packets.disable-offloads)",
		name, strings.Join(found, ", "), cmp.Or(carrier, wire.CarrierShim), name, strings.Join(found, " off "))
}

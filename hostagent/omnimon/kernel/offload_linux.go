// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
)

// The set of strings with the names of features, and the size of each (linux/ethtool.h).
const (
	stringsOfFeatures = 4
	stringLength      = 32
)

// offloads returns the active features of an interface that handle packets after program egress and
// by their EtherType: segmentation by the device, which would have to repeat the header, and
// checksums of IPv4 and IPv6 only. Segmentation by the kernel repeats the header.
func offloads(name string) ([]string, error) {
	names, blocks, err := featuresOf(name)
	if err != nil {
		return nil, err
	}
	var found []string
	for i, feature := range names {
		if blocks[i/32*4+2]>>(i%32)&1 != 0 && harmful(feature) {
			found = append(found, feature)
		}
	}
	return found, nil
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

// disable turns features of an interface off.
func disable(name string, off []string) error {
	names, blocks, err := featuresOf(name)
	if err != nil {
		return err
	}
	n := len(blocks) / 4
	request := make([]byte, 8+8*n)
	binary.NativeEndian.PutUint32(request, unix.ETHTOOL_SFEATURES)
	binary.NativeEndian.PutUint32(request[4:], uint32(n))
	for i, feature := range names {
		if slices.Contains(off, feature) {
			at := request[8+8*(i/32):]
			binary.NativeEndian.PutUint32(at, binary.NativeEndian.Uint32(at)|1<<(i%32))
		}
	}
	return ethtool(name, request)
}

// featuresOf returns the names of all features, and for every 32 of them the masks available,
// requested, active and never changed.
func featuresOf(name string) (names []string, blocks []uint32, err error) {
	info := make([]byte, 20)
	binary.NativeEndian.PutUint32(info, unix.ETHTOOL_GSSET_INFO)
	binary.NativeEndian.PutUint64(info[8:], 1<<stringsOfFeatures)
	if err := ethtool(name, info); err != nil {
		return nil, nil, err
	}
	n := int(binary.NativeEndian.Uint32(info[16:]))
	text := make([]byte, 12+n*stringLength)
	binary.NativeEndian.PutUint32(text, unix.ETHTOOL_GSTRINGS)
	binary.NativeEndian.PutUint32(text[4:], stringsOfFeatures)
	binary.NativeEndian.PutUint32(text[8:], uint32(n))
	if err := ethtool(name, text); err != nil {
		return nil, nil, err
	}
	for i := range n {
		names = append(names, unix.ByteSliceToString(text[12+i*stringLength:][:stringLength]))
	}
	words := (n + 31) / 32
	state := make([]byte, 8+16*words)
	binary.NativeEndian.PutUint32(state, unix.ETHTOOL_GFEATURES)
	binary.NativeEndian.PutUint32(state[4:], uint32(words))
	if err := ethtool(name, state); err != nil {
		return nil, nil, err
	}
	for at := 8; at < len(state); at += 4 {
		blocks = append(blocks, binary.NativeEndian.Uint32(state[at:]))
	}
	return names, blocks, nil
}

// ethtool runs one request on an interface. The kernel writes the answer over the request.
func ethtool(name string, request []byte) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	var r struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [24 - unsafe.Sizeof(uintptr(0))]byte
	}
	copy(r.name[:unix.IFNAMSIZ-1], name)
	var pin runtime.Pinner
	pin.Pin(&request[0])
	defer pin.Unpin()
	r.data = unsafe.Pointer(&request[0])
	_, _, code := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r)))
	if code != 0 {
		return fmt.Errorf("ethtool %s: %w", name, code)
	}
	return nil
}

const iflaGSOMaxSegs = 40

// limitSegments sets how many segments the kernel hands to program egress as one packet.
func limitSegments(index int, segments uint32) error {
	m := make([]byte, 4)
	m = binary.NativeEndian.AppendUint32(m, uint32(index))
	m = append(m, make([]byte, 8)...)
	m = appendAttr(m, iflaGSOMaxSegs, binary.NativeEndian.AppendUint32(nil, segments))
	return netlink(unix.RTM_NEWLINK, 0, m)
}

// prepare checks the features of the interface, and turns off those that do harm if the
// configuration says so.
func (p *Path) prepare(s *wire.Settings) error {
	if p.cfg.Interface == "" {
		return nil
	}
	found, err := offloads(p.cfg.Interface)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil // a device without features
	}
	if err != nil {
		return err
	}
	if len(found) > 0 {
		if !p.cfg.DisableOffloads {
			return offloadError(p.cfg.Interface, found)
		}
		if err := disable(p.cfg.Interface, found); err != nil {
			return err
		}
		if found, err = offloads(p.cfg.Interface); err != nil {
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
		if err := limitSegments(i.Index, 1); err != nil {
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

// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Constants of linux/ethtool.h: the string set with the names of features, and the bytes of each
// string.
const (
	stringsOfFeatures = 4
	stringLength      = 32
)

// Features returns the active features of an interface, by the names that ethtool prints. The error
// is unix.EOPNOTSUPP for a device without features.
func Features(name string) (active []string, err error) {
	names, blocks, err := featuresOf(name)
	if err != nil {
		return nil, err
	}
	for i, feature := range names {
		if blocks[i/32*4+2]>>(i%32)&1 != 0 {
			active = append(active, feature)
		}
	}
	return active, nil
}

// Driver returns the name of the driver of an interface, empty if it has none.
func Driver(name string) string {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(s)
	info, err := unix.IoctlGetEthtoolDrvinfo(s, name)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}

// Disable turns features of an interface off.
func Disable(name string, off []string) error {
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

// featuresOf returns the names of all features, and for every 32 features the masks available,
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

// LimitSegments sets how many segments the kernel hands to programs at the egress of an interface
// as one packet.
func LimitSegments(index int, segments uint32) error {
	m := make([]byte, 4)
	m = binary.NativeEndian.AppendUint32(m, uint32(index))
	m = append(m, make([]byte, 8)...)
	m = appendAttr(m, iflaGSOMaxSegs, binary.NativeEndian.AppendUint32(nil, segments))
	return netlink(unix.RTM_NEWLINK, 0, m)
}

// Segments returns how many segments the kernel hands to programs at the egress of an interface as
// one packet at most; 0: not known.
func Segments(index int) (segments int) {
	body := binary.NativeEndian.AppendUint32(make([]byte, 4, unix.SizeofIfInfomsg), uint32(index))
	_ = netlinkRead(unix.RTM_GETLINK, 0, append(body, make([]byte, 8)...), func(m []byte) { // 0 after an error
		if b := attributes(m[unix.SizeofIfInfomsg:])[iflaGSOMaxSegs]; len(b) == 4 {
			segments = int(binary.NativeEndian.Uint32(b))
		}
	})
	return segments
}

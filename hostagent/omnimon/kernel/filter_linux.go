// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// filter is a program at the egress of clsact, attached by rtnetlink. It stays attached without a
// process that refers to it.
type filter struct{ index int }

const (
	filterName     = "netsketch-omnimon"
	filterPriority = 0x4e53 // ours
	filterHandle   = 1

	tcaKind, tcaOptions                     = 1, 2
	tcaBPFFD, tcaBPFName, tcaBPFFlags       = 6, 7, 8
	tcaBPFDirectAction                      = 1
	parentClsact                      int64 = 0xfffffff1
	parentEgress                      int64 = 0xfffffff3
	handleClsact                      int64 = 0xffff0000
)

// replace attaches the program instead of the one that is attached, if there is any.
func (f *filter) replace(prog *ebpf.Program) error {
	qdisc := tcMessage(f.index, handleClsact, parentClsact, 0)
	qdisc = appendAttr(qdisc, tcaKind, []byte("clsact\x00"))
	err := netlink(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, qdisc)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("qdisc clsact: %w", err)
	}
	m := tcMessage(f.index, filterHandle, parentEgress, filterInfo)
	m = appendAttr(m, tcaKind, []byte("bpf\x00"))
	options := appendAttr(nil, tcaBPFFD, binary.NativeEndian.AppendUint32(nil, uint32(prog.FD())))
	options = appendAttr(options, tcaBPFName, []byte(filterName+"\x00"))
	options = appendAttr(options, tcaBPFFlags, binary.NativeEndian.AppendUint32(nil, tcaBPFDirectAction))
	m = appendAttr(m, tcaOptions|unix.NLA_F_NESTED, options)
	if err := netlink(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, m); err != nil {
		return fmt.Errorf("clsact filter: %w", err)
	}
	return nil
}

// remove detaches the program. The qdisc stays, because it may have other filters.
func (f *filter) remove() error {
	m := tcMessage(f.index, filterHandle, parentEgress, filterInfo)
	m = appendAttr(m, tcaKind, []byte("bpf\x00"))
	err := netlink(unix.RTM_DELTFILTER, 0, m)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil // gone with its interface or qdisc
	}
	return err
}

// filterInfo is the priority and the protocol, all of them, of the filter.
const filterInfo = filterPriority<<16 | unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8

// tcMessage is a struct tcmsg.
func tcMessage(index int, handle, parent int64, info uint32) []byte {
	b := make([]byte, 4, 128)
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = binary.NativeEndian.AppendUint32(b, uint32(handle))
	b = binary.NativeEndian.AppendUint32(b, uint32(parent))
	return binary.NativeEndian.AppendUint32(b, info)
}

func appendAttr(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, (4-len(value)%4)%4)...)
}

// netlink sends one rtnetlink request and returns the kernel's answer.
func netlink(kind, flags uint16, body []byte) error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	m := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	m = binary.NativeEndian.AppendUint32(m, 1)
	m = binary.NativeEndian.AppendUint32(m, 0)
	if err := unix.Sendto(s, append(m, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 8192)
	n, _, err := unix.Recvfrom(s, answer, 0)
	switch {
	case err != nil:
		return err
	case n < 20 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR:
		return errors.New("rtnetlink: unexpected answer")
	}
	if code := int32(binary.NativeEndian.Uint32(answer[16:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

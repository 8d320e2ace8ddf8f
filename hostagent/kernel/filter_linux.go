// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// filter is a program at clsact, attached by rtnetlink. It stays attached without a process that
// refers to it.
type filter struct {
	socket   int // for requests in the network namespace of the interface
	index    int // of the interface
	parent   int64
	priority uint32
	handle   int64 // of the program, below the priority
	name     string
}

// newFilter returns the filter of a role's hook. Its place depends on names only, so that any
// process finds it.
func newFilter(index int, role string, h Hook) (*filter, error) {
	s, err := netlinkSocket()
	if err != nil {
		return nil, err
	}
	name := "netsketch-" + role + "-" + h.Name
	f := &filter{socket: s, index: index, parent: parentIngress, priority: filterPriority, name: name,
		handle: int64(crc32.ChecksumIEEE([]byte(name))&0xffff) + 1}
	if h.At == ebpf.AttachTCXEgress {
		f.parent = parentEgress
	}
	if h.First {
		f.priority--
	}
	return f, nil
}

const (
	filterPriority = 0x4e53 // ours, and the one below it

	tcaKind, tcaOptions                     = 1, 2
	tcaBPFFD, tcaBPFName, tcaBPFFlags       = 6, 7, 8
	tcaBPFDirectAction                      = 1
	parentClsact                      int64 = 0xfffffff1
	parentIngress                     int64 = 0xfffffff2
	parentEgress                      int64 = 0xfffffff3
	handleClsact                      int64 = 0xffff0000
)

// replace attaches the program instead of the one that is attached, if there is any.
func (f *filter) replace(prog *ebpf.Program) error {
	qdisc := tcMessage(f.index, handleClsact, parentClsact, 0)
	qdisc = appendAttr(qdisc, tcaKind, []byte("clsact\x00"))
	err := request(f.socket, unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, qdisc)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("qdisc clsact: %w", err)
	}
	m := f.message()
	options := appendAttr(nil, tcaBPFFD, binary.NativeEndian.AppendUint32(nil, uint32(prog.FD())))
	options = appendAttr(options, tcaBPFName, []byte(f.name+"\x00"))
	options = appendAttr(options, tcaBPFFlags, binary.NativeEndian.AppendUint32(nil, tcaBPFDirectAction))
	m = appendAttr(m, tcaOptions|unix.NLA_F_NESTED, options)
	if err := request(f.socket, unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, m); err != nil {
		return fmt.Errorf("clsact filter: %w", err)
	}
	return nil
}

// remove detaches the program. The qdisc stays, because it may have other filters.
func (f *filter) remove() error {
	err := request(f.socket, unix.RTM_DELTFILTER, 0, f.message())
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil // gone with its interface or qdisc
	}
	return err
}

// exists reports whether the program is attached.
func (f *filter) exists() bool { return request(f.socket, unix.RTM_GETTFILTER, 0, f.message()) == nil }

// message begins a request about the filter, for all protocols.
func (f *filter) message() []byte {
	m := tcMessage(f.index, f.handle, f.parent, f.priority<<16|unix.ETH_P_ALL<<8&0xff00|unix.ETH_P_ALL>>8)
	return appendAttr(m, tcaKind, []byte("bpf\x00"))
}

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

func (f *filter) close() error { return unix.Close(f.socket) }

func netlinkSocket() (int, error) {
	return unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
}

// netlink sends one rtnetlink request in the network namespace of this thread.
func netlink(kind, flags uint16, body []byte) error {
	s, err := netlinkSocket()
	if err != nil {
		return err
	}
	defer unix.Close(s)
	return request(s, kind, flags, body)
}

// request sends one rtnetlink request and returns the kernel's answer.
func request(s int, kind, flags uint16, body []byte) error {
	m := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	m = binary.NativeEndian.AppendUint32(m, 1)
	m = binary.NativeEndian.AppendUint32(m, 0)
	if err := unix.Sendto(s, append(m, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 8192)
	for {
		n, _, err := unix.Recvfrom(s, answer, 0)
		switch {
		case err != nil:
			return err
		case n < 20:
			return errors.New("rtnetlink: unexpected answer")
		case binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR:
			continue // what was requested; the result follows
		}
		if code := int32(binary.NativeEndian.Uint32(answer[16:])); code != 0 {
			return unix.Errno(-code)
		}
		return nil
	}
}

// removeFilters detaches the programs of all roles at clsact, and reports whether there were any.
func removeFilters(index int, parent int64) (found bool, err error) {
	for _, priority := range []uint32{filterPriority, filterPriority - 1} {
		removed := netlink(unix.RTM_DELTFILTER, 0, tcMessage(index, 0, parent,
			priority<<16|unix.ETH_P_ALL<<8&0xff00|unix.ETH_P_ALL>>8))
		switch {
		case removed == nil:
			found = true
		case !errors.Is(removed, unix.ENOENT) && !errors.Is(removed, unix.EINVAL) && !errors.Is(removed, unix.ENODEV):
			err = errors.Join(err, fmt.Errorf("clsact filters: %w", removed))
		}
	}
	return found, err
}

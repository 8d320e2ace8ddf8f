// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// filter is a program at clsact, attached by rtnetlink. It stays attached without a process that
// refers to it.
type filter struct {
	socket   int // socket for requests in the network namespace of the interface
	index    int // index of the interface
	parent   int64
	priority uint32
	handle   int64 // handle of the program, below the priority
	name     string
}

// newFilter returns the filter of a role's hook. Its place depends on names only, so that any
// process finds it.
func newFilter(index int, role string, h Hook) (*filter, error) {
	s, err := netlinkSocket()
	if err != nil {
		return nil, err
	}
	name := filterName + role + "-" + h.Name
	f := &filter{socket: s, index: index, parent: parentIngress, priority: filterPriority, name: name,
		handle: int64(crc32.ChecksumIEEE([]byte(name))&0xffff) + 1}
	if h.At == ebpf.AttachTCXEgress {
		f.parent = parentEgress
	}
	if h.First {
		f.priority -= uint32(len(front) - place(role))
	}
	return f, nil
}

const (
	filterPriority = 0x4e53       // priority number of our filters; each role of front takes the next number below
	filterName     = "netsketch-" // begins the names of ours

	tcaKind, tcaOptions                     = 1, 2
	tcaBPFFD, tcaBPFName, tcaBPFFlags       = 6, 7, 8
	tcaBPFID                                = 11
	tcaBPFDirectAction                      = 1
	parentClsact                      int64 = 0xfffffff1
	parentIngress                     int64 = 0xfffffff2
	parentEgress                      int64 = 0xfffffff3
	handleClsact                      int64 = 0xffff0000
)

// replace attaches the program instead of the attached program, if there is one.
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
		return nil // the filter is gone with its interface or qdisc
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
	return netlinkRead(kind, flags, body, func([]byte) {})
}

// netlinkRead does the same, and calls f with each message of the answer, without its header.
func netlinkRead(kind, flags uint16, body []byte, f func(message []byte)) error {
	s, err := netlinkSocket()
	if err != nil {
		return err
	}
	defer unix.Close(s)
	return exchange(s, kind, flags, body, f)
}

// request sends one rtnetlink request and returns the kernel's answer.
func request(s int, kind, flags uint16, body []byte) error {
	return exchange(s, kind, flags, body, func([]byte) {})
}

func exchange(s int, kind, flags uint16, body []byte, f func(message []byte)) error {
	const header = 16
	m := binary.NativeEndian.AppendUint32(nil, uint32(header+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	m = binary.NativeEndian.AppendUint32(m, 1)
	m = binary.NativeEndian.AppendUint32(m, 0)
	if err := unix.Sendto(s, append(m, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(s, answer, 0)
		if err != nil {
			return err
		}
		for rest := answer[:n]; len(rest) > 0; {
			size := header
			if len(rest) >= header {
				size = int(binary.NativeEndian.Uint32(rest))
			}
			if size < header || size > len(rest) {
				return errors.New("rtnetlink: unexpected answer")
			}
			switch got := rest[header:size]; binary.NativeEndian.Uint16(rest[4:]) {
			case unix.NLMSG_ERROR, unix.NLMSG_DONE:
				if len(got) < 4 {
					return errors.New("rtnetlink: unexpected answer")
				}
				if code := int32(binary.NativeEndian.Uint32(got)); code != 0 {
					return unix.Errno(-code)
				}
				return nil
			default:
				f(got)
			}
			rest = rest[min((size+3)&^3, len(rest)):]
		}
	}
}

// attributes splits rtnetlink attributes.
func attributes(b []byte) map[uint16][]byte {
	found := map[uint16][]byte{}
	for len(b) >= 4 {
		n := int(binary.NativeEndian.Uint16(b))
		if n < 4 || n > len(b) {
			break
		}
		found[binary.NativeEndian.Uint16(b[2:])&^unix.NLA_F_NESTED] = b[4:n]
		b = b[min((n+3)&^3, len(b)):]
	}
	return found
}

// filtersAt returns the programs of agents at clsact of an interface, none without clsact.
func filtersAt(index int, parent int64) (found []Program) {
	const size = 20 // size of struct tcmsg
	_ = netlinkRead(unix.RTM_GETTFILTER, unix.NLM_F_DUMP, tcMessage(index, 0, parent, 0), func(m []byte) {
		if len(m) < size {
			return
		}
		all := attributes(m[size:])
		options := attributes(all[tcaOptions])
		name, id := unix.ByteSliceToString(options[tcaBPFName]), options[tcaBPFID]
		if unix.ByteSliceToString(all[tcaKind]) != "bpf" || !strings.HasPrefix(name, filterName) || len(id) != 4 {
			return
		}
		request := appendAttr(slices.Clone(m[:size]), tcaKind, []byte("bpf\x00"))
		found = append(found, Program{id: ebpf.ProgramID(binary.NativeEndian.Uint32(id)), name: name,
			egress: parent == parentEgress, detach: func() error { return netlink(unix.RTM_DELTFILTER, 0, request) }})
	})
	return found
}

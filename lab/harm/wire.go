// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Packets as hosts send them, with and without a carrier.

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/netsketch/netsketch/internal/checksum"
	"golang.org/x/sys/unix"
)

// seen is a packet that was captured on the wire.
type seen struct {
	carrier string // option, shim, tunnel; empty: no carrier
	probe   bool
	epoch   uint16 // modulo 65,536, with a carrier
	hostTo  string
}

// classify reads a frame as a host sends it. ok is false for frames of no host to a host.
func classify(frame []byte) (s seen, ok bool) {
	if len(frame) < 14 {
		return s, false
	}
	kind, rest := binary.BigEndian.Uint16(frame[12:]), frame[14:]
	const body = 6 + 4 // epoch, host index, hops and two slots
	if kind == 0x88b5 && len(rest) > body+2 {
		s.body("shim", rest)
		kind, rest = binary.BigEndian.Uint16(rest[body:]), rest[body+2:]
	}
	var to netip.Addr
	switch {
	case kind == 0x0800 && len(rest) >= 20:
		to = netip.AddrFrom4([4]byte(rest[16:20]))
		length := int(rest[0]&15) * 4
		if length > 20 && len(rest) > 28 && rest[20] == 0x9e {
			s.body("option", rest[22:])
		}
		if len(rest) >= length+8 && rest[9] == 17 {
			s.geneve(rest[length:])
		}
	case kind == 0x86dd && len(rest) >= 40:
		to = netip.AddrFrom16([16]byte(rest[24:40]))
		if rest[6] == 60 && len(rest) > 50 && rest[42] == 0x3e {
			s.body("option", rest[44:])
		}
		if rest[6] == 17 && len(rest) >= 48 {
			s.geneve(rest[40:])
		}
	}
	for _, h := range hosts {
		if to == h.v4 || to == h.v6 {
			s.hostTo = h.name
		}
	}
	return s, s.hostTo != ""
}

// geneve recognizes the carrier tunnel behind the IP header.
func (s *seen) geneve(udp []byte) {
	if len(udp) >= 8+8+4+6 && binary.BigEndian.Uint16(udp[2:]) == 6081 && binary.BigEndian.Uint16(udp[16:]) == 0xff5e {
		s.body("tunnel", udp[20:])
	}
}

// body reads the first six bytes of OmniMon's header in a carrier.
func (s *seen) body(carrier string, b []byte) {
	s.carrier, s.epoch, s.probe = carrier, binary.BigEndian.Uint16(b), b[5]&0x80 != 0
}

// sniffer records the packets that a host sends.
type sniffer struct {
	interval time.Duration

	mu       sync.Mutex
	tagged   []event // destination and time of packets with a carrier
	carriers map[string]int
	ahead    int // most epochs that a packet was ahead of this machine's clock
}

type event struct {
	to string
	at time.Time
}

// sniff reads frames that arrive at an interface of this namespace.
func sniff(device string, interval time.Duration) (*sniffer, error) {
	s := &sniffer{interval: interval, carriers: map[string]int{}}
	fd, err := rawSocket(device)
	if err != nil {
		return nil, err
	}
	go func() {
		b := make([]byte, 256)
		for {
			n, from, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				continue
			}
			if l, ok := from.(*unix.SockaddrLinklayer); !ok || l.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			if frame, ok := classify(b[:min(n, len(b))]); ok {
				s.take(frame, time.Now())
			}
		}
	}()
	return s, nil
}

func (s *sniffer) take(f seen, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.carrier != "" && !f.probe {
		s.tagged = append(s.tagged, event{f.hostTo, at})
		s.carriers[f.carrier]++
		s.ahead = max(s.ahead, int(int16(f.epoch-uint16(at.UnixNano()/int64(s.interval)))))
	}
}

// taggedTo counts packets with a carrier to a host in a time.
func (s *sniffer) taggedTo(host string, from, until time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, e := range s.tagged {
		if e.to == host && !e.at.Before(from) && e.at.Before(until) {
			n++
		}
	}
	return n
}

// forge sends packets with a carrier into the network from the control pair: from an address, to
// h2. Each packet states a later epoch, four more than the packet before.
func (w *world) forge(from netip.Addr) error {
	return in("c1", func() error {
		fd, err := rawSocket("eth0")
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		now := uint16(time.Now().UnixNano() / int64(w.epoch))
		for n := range 25 {
			body := binary.BigEndian.AppendUint16(nil, now+uint16(n+1)*4)
			body = append(body, 0, 0, 1, 0, 0, 1, 0, 2) // host index, hops, slots
			ethernet := []byte{2, 0, 0, 0, 0, 0xfe, 2, 0, 0, 0, 0x10, 3}
			var options []byte
			if w.settings.carrier == "option" {
				options = append([]byte{0x9e, byte(2 + len(body))}, body...)
				ethernet = append(ethernet, 8, 0)
			} else {
				ethernet = append(append(append(ethernet, 0x88, 0xb5), body...), 8, 0)
			}
			payload := make([]byte, 28) // UDP without a checksum; the receiver knows no stream 0
			binary.BigEndian.PutUint16(payload, 4000)
			binary.BigEndian.PutUint16(payload[2:], udpPort)
			binary.BigEndian.PutUint16(payload[4:], uint16(len(payload)))
			length := 20 + len(options)
			ip := append([]byte{byte(0x40 | length/4), 0, 0, byte(length + len(payload)), 0, 0, 0, 0, 64, 17, 0, 0},
				append(from.AsSlice(), hostOf("h2").v4.AsSlice()...)...)
			ip = append(ip, options...)
			binary.BigEndian.PutUint16(ip[10:], ^checksum.Sum(0, ip))
			if _, err := unix.Write(fd, append(append(ethernet, ip...), payload...)); err != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond) // 25 frames in half a second, as observed
		}
		return nil
	})
}

// rawSocket returns a socket that reads and writes frames of an interface.
func rawSocket(device string) (int, error) {
	i, err := net.InterfaceByName(device)
	if err != nil {
		return 0, err
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // all protocols, in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20); err != nil {
		return 0, err
	}
	return fd, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index})
}

// routerFilter drops packets as some routers do.
type routerFilter struct {
	program *ebpf.Program
	link    link.Link
}

// dropOptions makes the router drop all packets with IPv4 options or IPv6 destination options.
func (w *world) dropOptions() error {
	for _, device := range []string{"s1", "s2"} {
		f := &routerFilter{}
		w.router = append(w.router, f)
		err := in("r", func() (err error) {
			i, err := net.InterfaceByName(device)
			if err != nil {
				return err
			}
			f.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0",
				Instructions: asm.Instructions{
					asm.Mov.Reg(asm.R6, asm.R1),
					asm.LoadAbs(12, asm.Half),
					asm.JEq.Imm(asm.R0, 0x86dd, "six"),
					asm.JNE.Imm(asm.R0, 0x0800, "pass"),
					asm.LoadAbs(14, asm.Byte),
					asm.JGT.Imm(asm.R0, 0x45, "drop"),
					asm.Ja.Label("pass"),
					asm.LoadAbs(20, asm.Byte).WithSymbol("six"),
					asm.JEq.Imm(asm.R0, 60, "drop"),
					asm.Mov.Imm(asm.R0, -1).WithSymbol("pass"), // TCX_NEXT
					asm.Return(),
					asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"), // TCX_DROP
					asm.Return(),
				}})
			if err != nil {
				return err
			}
			f.link, err = link.AttachTCX(link.TCXOptions{Interface: i.Index, Program: f.program,
				Attach: ebpf.AttachTCXIngress})
			return err
		})
		if err != nil {
			return fmt.Errorf("a router that drops options: %w", err)
		}
	}
	return nil
}

// passOptions ends dropOptions.
func (w *world) passOptions() error {
	for _, f := range w.router {
		if err := f.link.Close(); err != nil {
			return err
		}
		f.program.Close()
	}
	w.router = nil
	return nil
}

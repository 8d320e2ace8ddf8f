// SPDX-License-Identifier: Apache-2.0

package rawlink

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// CheckEthernet returns an error, which does not name the interface, if the frames of an interface
// do not begin with an Ethernet header.
func CheckEthernet(name string) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	r, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(s, unix.SIOCGIFHWADDR, r)
	}
	if err != nil {
		return fmt.Errorf("link type: %w", err)
	}
	return refusal(r.Uint16())
}

// refusal returns an error if an interface has a link type without Ethernet headers.
func refusal(kind uint16) error {
	switch kind {
	case unix.ARPHRD_ETHER, unix.ARPHRD_LOOPBACK:
		return nil
	case unix.ARPHRD_NONE:
		return fmt.Errorf("packets without link-layer headers (link type %#x), as WireGuard and tun devices have; "+
			"expected Ethernet: name the interface that carries the tunnel's packets", kind)
	default:
		kindName := linkKinds[kind]
		if kindName == "" {
			kindName = "not known"
		}
		return fmt.Errorf("link type %d (%s); expected Ethernet (%d)", kind, kindName, unix.ARPHRD_ETHER)
	}
}

// linkKinds names link types whose frames do not begin with an Ethernet header.
var linkKinds = map[uint16]string{unix.ARPHRD_PPP: "PPP",
	unix.ARPHRD_TUNNEL: "IP in IP", unix.ARPHRD_TUNNEL6: "IPv6 tunnel",
	unix.ARPHRD_SIT: "SIT", unix.ARPHRD_IPGRE: "GRE", unix.ARPHRD_IP6GRE: "GRE over IPv6",
	unix.ARPHRD_INFINIBAND: "InfiniBand", unix.ARPHRD_IEEE80211_RADIOTAP: "802.11 monitor", unix.ARPHRD_CAN: "CAN",
	unix.ARPHRD_RAWIP: "raw IP", unix.ARPHRD_NETLINK: "netlink", unix.ARPHRD_VSOCKMON: "vsock"}

// Receive makes a packet socket put a header in front of each frame, which describes the work that
// the kernel leaves to the device. It must be called before a ring is set up. Frames that the
// socket sends need this header as well.
func Receive(socket int) error {
	if err := unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return fmt.Errorf("packet socket: PACKET_VNET_HDR: %w", err)
	}
	return nil
}

// OnlyArriving makes a packet socket drop the frames that its interface sends. This also works in
// a fanout, which ignores its sockets' PACKET_IGNORE_OUTGOING.
func OnlyArriving(socket int) error {
	const typeOfFrame = 1<<32 - 0x1000 + 4 // SKF_AD_OFF + SKF_AD_PKTTYPE
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: typeOfFrame},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.PACKET_OUTGOING, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1},
	}
	if err := unix.SetsockoptSockFprog(socket, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		return fmt.Errorf("packet socket: filter of frames that arrive: %w", err)
	}
	return nil
}

// Sender returns a packet socket that sends to an interface, and receives nothing.
func Sender(index int) (int, error) {
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("packet socket: %w", err)
	}
	if err := unix.Bind(s, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
		_ = unix.Close(s)
		return 0, fmt.Errorf("packet socket: %w", err)
	}
	return s, nil
}

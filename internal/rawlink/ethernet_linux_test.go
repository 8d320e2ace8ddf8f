// SPDX-License-Identifier: Apache-2.0

package rawlink

import (
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

// TestCheckEthernet: interfaces of all kinds that the kernel offers are accepted if their frames
// begin with an Ethernet header, and otherwise refused with the name of their link type.
func TestCheckEthernet(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	made := 0
	for kind, tc := range map[string]struct{ create, want string }{
		"dummy":   {"link add x0 type dummy", ""},
		"bridge":  {"link add x0 type bridge", ""},
		"veth":    {"link add x0 type veth peer name x1", ""},
		"bond":    {"link add x0 type bond", ""},
		"tap":     {"tuntap add dev x0 mode tap", ""},
		"gretap":  {"link add x0 type gretap local 127.0.0.1 remote 127.0.0.2", ""},
		"vxlan":   {"link add x0 type vxlan id 7 dstport 4789 dev lo", ""},
		"tun":     {"tuntap add dev x0 mode tun", "without link-layer headers"},
		"sit":     {"link add x0 type sit local 127.0.0.1 remote 127.0.0.2", "link type 776 (SIT)"},
		"gre":     {"link add x0 type gre local 127.0.0.1 remote 127.0.0.2", "link type 778 (GRE)"},
		"ipip":    {"link add x0 type ipip local 127.0.0.1 remote 127.0.0.2", "link type 768 (IP in IP)"},
		"ip6tnl":  {"link add x0 type ip6tnl local ::1 remote ::2", "link type 769 (IPv6 tunnel)"},
		"ip6gre":  {"link add x0 type ip6gre local ::1 remote ::2", "link type 823 (GRE over IPv6)"},
		"wg":      {"link add x0 type wireguard", "without link-layer headers"},
		"vcan":    {"link add x0 type vcan", "link type 280 (CAN)"},
		"nlmon":   {"link add x0 type nlmon", "link type 824 (netlink)"},
		"vti":     {"link add x0 type vti local 127.0.0.1 remote 127.0.0.2 key 3", "link type 768 (IP in IP)"},
		"macvlan": {"link add x0 link lo type macvlan", ""},
	} {
		if err := testkit.IP(tc.create); err != nil {
			t.Logf("%s: this kernel has none: %v", kind, err)
			continue
		}
		made++
		err := CheckEthernet("x0")
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", kind, err, tc.want)
		}
		if err := testkit.IP("link del x0"); err != nil {
			t.Fatal(err)
		}
	}
	if err := CheckEthernet("lo"); err != nil {
		t.Error(err)
	}
	if made == 0 {
		t.Skip("this kernel has no virtual interfaces")
	}
}

// TestLinkKinds: link types of interfaces that this kernel may lack.
func TestLinkKinds(t *testing.T) {
	for kind, want := range map[uint16]string{1: "", 772: "", 512: "link type 512 (PPP)", 768: "(IP in IP)",
		769: "(IPv6 tunnel)", 776: "(SIT)", 778: "(GRE)", 823: "(GRE over IPv6)", 280: "(CAN)", 824: "(netlink)",
		32: "(InfiniBand)", 519: "(raw IP)", 803: "(802.11 monitor)", 9999: "link type 9999 (not known)",
		0xfffe: "without link-layer headers"} {
		if err := refusal(kind); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q", kind, err, want)
		}
	}
}

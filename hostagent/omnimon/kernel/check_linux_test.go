// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
)

// TestCheckOfCarriers: the check finds what the carrier in force needs and an interface lacks.
// After the commands that the findings name, it finds nothing.
func TestCheckOfCarriers(t *testing.T) {
	if !kerneltest.Isolated(t) {
		return
	}
	for carrier, c := range map[wire.Carrier]struct {
		error string
		mtu   string
	}{
		"":                 {mtu: "more than 1488 bytes (IPv6: 1484)"}, // without settings, the defaults of the plugin hold
		wire.CarrierOption: {mtu: "more than 1488 bytes (IPv6: 1484)"},
		wire.CarrierTunnel: {mtu: "more than 1448 bytes (IPv6: 1428)"},
		wire.CarrierShim:   {error: "damage packets with the carrier shim", mtu: "more than 1488 bytes (IPv6: 1488)"},
	} {
		kerneltest.IP(t, "link del dev host")
		kerneltest.Veth(t)
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/host/disable_ipv6", []byte("0"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"addr add 10.0.0.1/24 dev host", "-6 addr add fd00::1/64 dev host nodad",
			"route add default via 10.0.0.9 dev host metric 7", "-6 route add default via fd00::9 dev host"} {
			kerneltest.IP(t, line)
		}
		cfg := Config{Interface: "host", State: filepath.Join(t.TempDir(), "settings")}
		if carrier != "" {
			s := defaults(0)
			s.Carrier = carrier
			s.Extremes = nil
			if err := os.WriteFile(cfg.State, encoded(t, s), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		warnings, err := Check(cfg)
		text := strings.Join(warnings, "\n")
		if (err != nil) != (c.error != "") || err != nil && !strings.Contains(err.Error(), c.error) {
			t.Errorf("%q: %v, want %q", carrier, err, c.error)
		}
		if !strings.Contains(text, c.mtu) {
			t.Errorf("%q: %s\nwant %s", carrier, text, c.mtu)
		}
		if unsure := strings.Contains(text, "if the plugin's carrier is shim"); unsure != (carrier == "") {
			t.Errorf("%q: %s", carrier, text)
		}
		if err != nil {
			text += "\n" + err.Error()
		}
		commands := regexp.MustCompile(`(?:ip (?:-6 )?(?:route|link)|ethtool) [^;,\n(]+[a-z0-9]`).FindAllString(text, -1)
		if cfg.DisableOffloads = carrier == ""; len(commands) < 3 {
			t.Errorf("%q: commands %q", carrier, commands)
		}
		for _, line := range commands {
			words := strings.Fields(line)
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%q: %s: %v\n%s", carrier, line, err, out)
			}
		}
		if warnings, err := Check(cfg); err != nil || len(warnings) > 0 {
			t.Errorf("%q, after %q: %q, %v", carrier, commands, warnings, err)
		}
	}
	i, err := net.InterfaceByName("host")
	if err != nil || i.MTU <= 1500 {
		t.Errorf("MTU %d, %v", i.MTU, err)
	}
}

// TestCheckOfSegments: settings that need each segment are named with the command.
func TestCheckOfSegments(t *testing.T) {
	if !kerneltest.Isolated(t) {
		return
	}
	cfg := Config{Interface: "host", State: filepath.Join(t.TempDir(), "settings")}
	s := defaults(0)
	s.Carrier = wire.CarrierOption
	s.Extremes = []wire.Extreme{{Field: wire.FieldLength}}
	if err := os.WriteFile(cfg.State, encoded(t, s), 0o600); err != nil {
		t.Fatal(err)
	}
	warnings, err := Check(cfg)
	if text := strings.Join(warnings, "\n"); err != nil || !strings.Contains(text, "ip link set dev host gso_max_segs 1") {
		t.Errorf("%s, %v", text, err)
	}
	kerneltest.IP(t, "link set dev host gso_max_segs 1")
	if warnings, err := Check(cfg); err != nil || len(warnings) > 0 {
		t.Errorf("%q, %v", warnings, err)
	}
}

// TestHarmful: each carrier refuses the features that damage its packets, and no others.
func TestHarmful(t *testing.T) {
	for _, c := range []struct {
		feature                        string
		shim, option4, option6, tunnel bool
	}{
		{"tx-tcp-segmentation", true, false, false, false},
		{"tx-tcp6-segmentation", true, false, false, false},
		{"tx-udp_tnl-segmentation", true, false, false, false},
		{"tx-checksum-ipv4", true, false, false, false},
		{"tx-checksum-ipv6", true, false, true, false},
		{"tx-checksum-ip-generic", false, false, false, false},
		{"tx-generic-segmentation", false, false, false, false},
		{"rx-gro", false, false, false, false},
	} {
		for _, g := range []struct {
			carrier  wire.Carrier
			v6, want bool
		}{{"", false, c.shim}, {wire.CarrierShim, true, c.shim}, {wire.CarrierOption, false, c.option4},
			{wire.CarrierOption, true, c.option6}, {wire.CarrierTunnel, true, c.tunnel}} {
			if got := harmful(c.feature, g.carrier, g.v6); got != g.want {
				t.Errorf("%s with the carrier %q, IPv6 %v: %v", c.feature, g.carrier, g.v6, got)
			}
		}
	}
}

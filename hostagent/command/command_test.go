// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
)

// testRole has no reports.
type testRole struct{}

func (testRole) Name() string            { return "test" }
func (testRole) Apply([]byte) error      { return nil }
func (testRole) Out([]*packet.Frame)     {}
func (testRole) In([]*packet.Frame)      {}
func (testRole) Seal(uint64) role.Report { return nil }

var testRoles = []Role{{Name: "test", New: func(*epoch.Clock) role.Role { return testRole{} }}}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigErrorsNameTheirPlace(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"empty", "{}", []string{
			"agent.yaml: collector.address: is missing; expected host:port, such as 192.0.2.1:9350",
			"agent.yaml: collector.tls.cert-file: is missing; expected a file with the certificate of this host",
			"agent.yaml: packets.interface: is missing; source kernel needs it"}},
		{"unknown key", "collector: {address: \"192.0.2.1:9350\", tsl: {}}", []string{
			`agent.yaml:1:40: collector: unknown key "tsl": did you mean "tls"?`}},
		{"keys that belong together", `host: h1
collector: {address: "192.0.2.1:9350"}
roles: [test, other]
packets: {source: bridge, inside: veth0, interface: eth0}
`, []string{
			"agent.yaml:2:12: collector.tls.cert-file: is missing; expected a file with the certificate of this host",
			`agent.yaml:3:8: roles: "other" is no role of this program`,
			"agent.yaml:4:10: packets.outside: is missing; source bridge needs it",
			"agent.yaml:4:53: packets.interface: is for source kernel; the source is bridge"}},
		{"reports without an address", `host: h1
collector: {address: "192.0.2.1:9350", tls: {plaintext: true}}
packets: {source: reports, interface: eth0}
hold-above: 10MB
local: 127.0.0.1:9339
`, []string{
			"agent.yaml:3:10: packets.receive: is missing; source reports needs it",
			"agent.yaml:3:39: packets.interface: is for source kernel; the source is reports",
			"agent.yaml:4:13: hold-above: needs an interface: source kernel or bridge; the source is reports",
			`agent.yaml:5:8: local: "127.0.0.1:9339" is no socket of this host; expected unix:///run/netsketch/hostagent.sock`}},
		{"plaintext without a name", `collector: {address: "192.0.2.1:9350", tls: {plaintext: true}}
packets: {interface: eth0}
`, []string{"agent.yaml: host: is missing; expected the name of this host, which no certificate states on plaintext"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			path := write(t, tc.text)
			_, err := load(path, testRoles)
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.Split(strings.ReplaceAll(err.Error(), filepath.Dir(path)+"/", ""), "\n")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// receiverRole measures telemetry reports.
type receiverRole struct{ testRole }

func (receiverRole) Receive([]role.Datagram) {}

// TestRolesOfASource: without roles in the file, those run that the source suits; a role that it
// does not suit is an error.
func TestRolesOfASource(t *testing.T) {
	roles := append(testRoles, Role{Name: "receiver", New: func(*epoch.Clock) role.Role { return receiverRole{} }},
		Role{Name: "kernel", Kernel: &Kernel{Open: func(kernel.Config) (agent.DataPath, error) {
			return agent.NewRolePath(testRoles[0].New), nil
		}}})
	for _, tc := range []struct {
		source Source
		named  []string
		want   string
	}{
		{SourceKernel, nil, "kernel"}, {SourceBridge, nil, "test receiver"}, {SourceReports, nil, "receiver"},
		{SourceReports, []string{"receiver"}, "receiver"},
		{SourceReports, []string{"test"}, "role test does not run with packets.source: reports"},
		{SourceKernel, []string{"receiver"}, "role receiver does not run with packets.source: kernel"},
	} {
		c := &Config{Roles: tc.named, Packets: Packets{Source: tc.source}}
		var got []string
		for _, r := range c.configured(roles) {
			got = append(got, r.Name)
		}
		d, err := c.open(roles, nil)
		if err != nil {
			got = []string{err.Error()}
		} else if len(d.all) != len(got) {
			t.Errorf("%d data paths of %v", len(d.all), got)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s, %v: %v; want %s", tc.source, tc.named, got, tc.want)
		}
	}
	if _, err := (&Config{Packets: Packets{Source: SourceReports}}).open(testRoles, nil); err == nil {
		t.Error("no role is accepted")
	}
}

func TestExampleIsValid(t *testing.T) {
	c, err := load("../../configs/agent.yaml", testRoles)
	if err != nil {
		t.Fatal(err)
	}
	if c.Packets.Source != SourceKernel || c.MaxBuffered != 256<<20 ||
		c.Collector.TLS.CertFile != filepath.Join("..", "..", "configs", "tls", "h1.pem") {
		t.Errorf("%+v", c)
	}
}

// TestCheck: all findings are reported, not only the first.
func TestCheck(t *testing.T) {
	path := write(t, `host: h1
collector: {address: "127.0.0.1:1", tls: {plaintext: true}}
packets: {source: capture, file: missing.pcap, addresses: [10.0.0.1]}
local: unix:///no-such-directory/socket
`)
	run := func(args ...string) error {
		var out bytes.Buffer
		cmd := New("1", testRoles...)
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"check", "--config", path}, args...))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		return fmt.Errorf("%w\n%s", cmd.Execute(), &out)
	}
	err := run()
	for _, want := range []string{"the agent would fail", "ok    configuration",
		"ok    role test with packets.source: capture",
		"fail  capture file: ", "fail  queries at unix:///no-such-directory/socket: stat /no-such-directory: ",
		"no role that runs with packets.source: capture answers queries",
		"fail  session with the collector at 127.0.0.1:1: dial tcp"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
	if err := run("--offline"); strings.Contains(err.Error(), "session") {
		t.Errorf("offline: %v", err)
	}
}

// TestState: an agent with the pins of the service finds the service's state when it is run by
// hand.
func TestState(t *testing.T) {
	for _, c := range []struct{ configured, variable, pin, want string }{
		{"/a", "/b", defaultPin, "/a"}, {"", "/b", defaultPin, "/b"}, {"", "", defaultPin, "/var/lib/netsketch-agent"},
		{"", "", "/sys/fs/bpf/other", ""}, {"", "", "", ""},
	} {
		t.Setenv("STATE_DIRECTORY", c.variable)
		if got := state(c.configured, c.pin); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

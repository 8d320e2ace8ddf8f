// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/settings/yaml"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run with -update to create it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is out of step (-want +got), run with -update:\n%s", file, diff)
	}
}

// Parsing each file in testdata/bad returns exactly the problems listed in the .err file next to
// it.
func TestBadFilesNameTheirProblems(t *testing.T) {
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = config.Parse("netsketch.yaml", data)
			if err == nil {
				t.Fatal("accepted")
			}
			var ps settings.Problems
			if !errors.As(err, &ps) {
				t.Fatalf("error is %T, want Problems", err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".err", err.Error()+"\n")
		})
	}
}

func env(pairs ...string) func(string) (string, bool) {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(k string) (string, bool) { v, ok := m[k]; return v, ok }
}

func full(t *testing.T) *config.Config {
	t.Helper()
	data, err := os.ReadFile("testdata/good/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.ParseEnv("/etc/netsketch/netsketch.yaml", data, env("TOKEN", "s3cr3t"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Keys of the configuration of devices over gNMI are checked.
func TestDeviceConfiguration(t *testing.T) {
	const file = `
device-configuration: {directory: %s}
devices:
- {name: leaf1, address: "192.0.2.1:9559", gnmi: {address: "192.0.2.1:9339", configure: %s, ports: [%s]}}
`
	for _, c := range []struct{ directory, configure, ports, want string }{
		{"state", "enforce", "{number: 1, interface: Ethernet0}", ""},
		{"", "apply", "", "device-configuration.directory: is missing"},
		{"state", "always", "", "devices[0].gnmi.configure"},
		{"state", "apply", "{number: 1, interface: a}, {number: 1, interface: b}", "1 is already the number of ports[0]"},
		{"state", "apply", "{number: 1, interface: a}, {number: 2, interface: a}", `"a" is already ports[0]`},
		{"state", "apply", "{number: 0, interface: a}", "devices[0].gnmi.ports[0].number"},
		{"state", "apply", "{number: 1}", "devices[0].gnmi.ports[0].interface"},
	} {
		_, err := config.Parse("netsketch.yaml", fmt.Appendf(nil, file, c.directory, c.configure, c.ports))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v", c, err)
		}
	}
}

func TestFullFile(t *testing.T) {
	c := full(t)
	if got, want := c.Epoch, (config.Epoch{Interval: 500 * time.Millisecond, Guard: 5 * time.Millisecond,
		Drain: 10 * time.Millisecond, Deadline: 400 * time.Millisecond}); got != want {
		t.Errorf("epoch %+v, want %+v", got, want)
	}
	leaf2 := config.Device{
		Name: "leaf2", Address: "[::1]:9002", DeviceID: 2, Role: config.RoleEdge, Mode: config.ModePrimary,
		ElectionID: config.ElectionID{High: 1, Low: 5}, Pipeline: config.Pipeline{Name: "univmon-300k"},
		Forwarding: config.ForwardingManaged, Timeout: 5 * time.Second, TLS: config.TLS{Plaintext: true},
		GNMI: config.GNMI{Configure: config.ConfigureCheck},
	}
	if diff := cmp.Diff(leaf2, c.Devices[1]); diff != "" {
		t.Errorf("leaf2 (-want +got):\n%s", diff)
	}
	spine := c.Devices[2]
	if spine.Role != config.RoleTransit || spine.Mode != config.ModeBackup ||
		spine.Pipeline != (config.Pipeline{Keep: true}) {
		t.Errorf("spine1 %+v", spine)
	}
	if got, want := c.Hosts[1].Addresses[0].Prefix, netip.MustParsePrefix("10.0.2.0/24"); got != want {
		t.Errorf("h2 address %s, want %s", got, want)
	}
	if got, want := c.Hosts[0].Addresses[0].Prefix, netip.MustParsePrefix("10.0.1.1/32"); got != want {
		t.Errorf("h1 address %s, want %s", got, want)
	}
	if got, want := c.Agents, (config.Agents{Address: ":9350", Timeout: 10 * time.Second, MaxReport: 64 << 20,
		MaxEpoch: 2 << 30, UDP: true,
		TLS: config.AgentsTLS{CertFile: "/etc/netsketch/tls/collector.pem", KeyFile: "/etc/netsketch/tls/collector.key",
			ClientCAFile: "/etc/netsketch/tls/agents.pem"}}); got != want {
		t.Errorf("agents %+v, want %+v", got, want)
	}
	if got := c.AgentHosts(); !slices.Equal(got, []string{"h2"}) {
		t.Errorf("hosts with agents %v, want h2", got)
	}
	p := c.Plugins.Instances[0]
	if p.Name != "univmon" || p.Deadline != 0 || p.Record != "/etc/netsketch/univmon.epochs" ||
		p.RecordLimit != 16<<20 || !p.Selects("leaf7") || p.Selects("spine1") {
		t.Errorf("plugin %+v", p)
	}
	js, err := p.Config.JSON()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"big":18446744073709551615,"dimensions":["src","5-tuple"],"threshold":0.005,"token":"s3cr3t"}`
	if got := string(js); got != want {
		t.Errorf("plugin config %s, want %s", got, want)
	}
	if c.Log.Level != slog.LevelDebug || c.Log.Format != config.LogJSON || c.Metrics.Enabled {
		t.Errorf("log %+v, metrics %+v", c.Log, c.Metrics)
	}
}

func TestSecretsStayOutOfLogs(t *testing.T) {
	c := full(t)
	if got := c.Plugins.Instances[0].Environment["LICENSE"].Reveal(); got != "s3cr3t" {
		t.Fatalf("secret is %q", got)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("started", "config", c.Plugins.Instances[0].Environment, "secret",
		c.Plugins.Instances[0].Environment["LICENSE"])
	slog.New(slog.NewTextHandler(&log, nil)).Info("started", "config", c.Plugins.Instances[0].Environment)
	fmt.Fprintf(&log, "%v %+v %#v", c.Plugins.Instances[0].Environment, c.Plugins.Instances[0].Environment,
		c.Plugins.Instances[0].Environment)
	if strings.Contains(log.String(), "s3cr3t") {
		t.Errorf("the secret was printed: %s", log.String())
	}
}

func TestEmptyFileHasTheDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "{}", "epoch:\n"} {
		c, err := config.Parse("netsketch.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if c.Name != "netsketch" || c.Epoch.Interval != time.Second || !c.Metrics.Enabled {
			t.Errorf("%q: %+v", text, c)
		}
	}
}

func TestMissingFile(t *testing.T) {
	_, err := config.Load(filepath.Join(t.TempDir(), "none.yaml"))
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("error %v does not name the file", err)
	}
}

func TestMergeKeysAndAliases(t *testing.T) {
	c, err := config.Parse("n.yaml", []byte(`
device-defaults: &base {tls: {plaintext: true}, timeout: 2s}
devices:
  - <<: *base
    name: s1
    address: a:1
    device-id: 1
    timeout: 3s
`))
	if err != nil {
		t.Fatal(err)
	}
	if d := c.Devices[0]; !d.TLS.Plaintext || d.Timeout != 3*time.Second {
		t.Errorf("%+v", d)
	}
}

func TestAliasBombIsRefused(t *testing.T) {
	var b strings.Builder
	b.WriteString("plugins:\n  instances:\n    - plugin: x\n      config:\n        a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "        a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
	}
	_, err := config.Parse("n.yaml", []byte(b.String()))
	if err == nil || !strings.Contains(err.Error(), "counting aliases") {
		t.Errorf("error %v", err)
	}
}

type outputConfig struct {
	Listen string          `yaml:"listen" required:"host:port"`
	Every  time.Duration   `yaml:"every" default:"1m"`
	Limit  settings.Size   `yaml:"limit"`
	Token  settings.Secret `yaml:"token"`
	Peers  []struct {
		Name string `yaml:"name"`
	} `yaml:"peers"`
}

func (c outputConfig) Validate() error {
	var errs settings.KeyErrors
	if c.Limit > 1<<30 {
		errs.Add("limit", "is more than 1GiB")
	}
	return errs.Err()
}

func TestSectionDecode(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       outputConfig
		problems   string
	}{
		{"values over defaults", "outputs:\n  - {type: x, listen: ':1', limit: 64KiB, token: '${T}', peers: [{name: p}]}",
			outputConfig{Listen: ":1", Every: time.Minute, Limit: 64 << 10, Token: "tok", Peers: []struct {
				Name string `yaml:"name"`
			}{{"p"}}}, ""},
		{"a near miss", "outputs:\n  - type: x\n    lisen: ':1'\n    peers: [{nam: p}]", outputConfig{},
			"n.yaml:2:5: outputs[0].listen: is missing; expected host:port\n" +
				"n.yaml:3:5: outputs[0]: unknown key \"lisen\": did you mean \"listen\"?\n" +
				"n.yaml:4:14: outputs[0].peers[0]: unknown key \"nam\": did you mean \"name\"?"},
		{"validate places its errors", "outputs:\n  - type: x\n    listen: ':1'\n    limit: 2GiB", outputConfig{},
			"n.yaml:4:12: outputs[0].limit: is more than 1GiB"},
		{"a size", "outputs:\n  - {type: x, listen: ':1', limit: lots}", outputConfig{},
			"n.yaml:2:36: outputs[0].limit: expected a size in bytes, such as 65536, 64KiB or 10MB; found \"lots\""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := config.ParseEnv("n.yaml", []byte(test.text), env("T", "tok"))
			if err != nil {
				t.Fatal(err)
			}
			var got outputConfig
			err = c.Outputs[0].Settings.Decode(&got)
			if test.problems != "" {
				if err == nil || err.Error() != test.problems {
					t.Fatalf("problems:\n%v\nwant:\n%s", err, test.problems)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Token.Reveal() != test.want.Token.Reveal() || !cmp.Equal(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestExpansion(t *testing.T) {
	for text, want := range map[string]string{
		"${A}": "1", "x${A}y${A}": "x1y1", "$$A": "$A", "$A": "$A", "${B:-b}": "b", "${A:-b}": "1", "50$": "50$",
		"${E}": "", "${E-b}": "", "${B-b}": "b", "${B-b-c}": "b-c",
	} {
		c, err := config.ParseEnv("n.yaml", []byte("outputs: [{type: x, listen: '"+text+"'}]"), env("A", "1", "E", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Outputs[0].Settings.Value().(map[string]any)["listen"]; got != want {
			t.Errorf("%s gives %q, want %q", text, got, want)
		}
	}
}

// Expressions of a shell that are not supported are refused as such, whether the variable is set or
// not.
func TestOtherExpansions(t *testing.T) {
	for _, text := range []string{"${A:=b}", "${B:=b}", "${A:?no}", "${A:?is-not-set}", "${B:?must-be-set}",
		"${B:+a-b}", "${B:=a-b}", "${A:+b}", "${A=b}", "${B?}"} {
		_, err := config.ParseEnv("n.yaml", []byte("outputs: [{type: x, listen: '"+text+"'}]"), env("A", "1"))
		if err == nil || !strings.Contains(err.Error(), "only ${NAME}, ${NAME:-default} and ${NAME-default} are supported") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSizeText(t *testing.T) {
	for text, want := range map[string]string{"1.5KiB": "1536", "2MiB": "2MiB", "10 MB": "10000000", "0": "0"} {
		var s settings.Size
		if err := s.UnmarshalText([]byte(text)); err != nil || s.String() != want {
			t.Errorf("%s gives %s, %v; want %s", text, s, err, want)
		}
	}
	for _, text := range []string{"-1", "1PB", "", "NaN", "1e30GB"} {
		var s settings.Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q accepted as %d", text, s)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*.yaml", "testdata/bad/*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("<<: {name: x}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.ParseEnv("f.yaml", data, env())
		if (c == nil) == (err == nil) {
			t.Fatalf("config %v with error %v", c, err)
		}
		var ps settings.Problems
		if err != nil && (!errors.As(err, &ps) || len(ps) == 0) {
			t.Fatalf("error is not a list of problems: %v", err)
		}
	})
}

// The configuration that the project ships has no problems.
func TestShippedConfiguration(t *testing.T) {
	c, err := config.Load("../../configs/netsketch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Devices) != 3 || c.Devices[2].Role != config.RoleTransit || len(c.Plugins.Instances) != 1 {
		t.Errorf("%+v", c)
	}
}

func TestSectionProblem(t *testing.T) {
	c := parse(t, "plugins:\n  instances:\n    - plugin: x\n      config:\n        dimensions:\n"+
		"          - src\n          - {key: dst,\n             rows: 3}\n")
	s := c.Plugins.Instances[0].Config
	for field, want := range map[string]string{
		"dimensions[1].rows": "n.yaml:8:20 plugins.instances[0].config.dimensions[1].rows",
		"dimensions[0]":      "n.yaml:6:13 plugins.instances[0].config.dimensions[0]",
		"dimensions[1].cols": "n.yaml:7:13 plugins.instances[0].config.dimensions[1].cols",
		"dimensions[9]":      "n.yaml:6:11 plugins.instances[0].config.dimensions[9]",
		"":                   "n.yaml:5:9 plugins.instances[0].config",
		"levels":             "n.yaml:5:9 plugins.instances[0].config.levels",
	} {
		p := s.Problem(field, "m")
		if got := p.Position.String() + " " + p.Path; got != want {
			t.Errorf("%q is at %q, want %q", field, got, want)
		}
	}
	if p := (settings.Section{}).Problem("x", "m"); p.Error() != "x: m" {
		t.Errorf("in no section: %s", p)
	}
}

func TestProblemExcerpt(t *testing.T) {
	_, err := config.Parse("n.yaml", []byte("devices:\n  - name: s1\n    addr: a:1\n"))
	var p settings.Problems
	if !errors.As(err, &p) || len(p) == 0 {
		t.Fatal(err)
	}
	if got, want := p[len(p)-1].Excerpt, "     3 |     addr: …\n       |     ^"; got != want {
		t.Errorf("excerpt\n%s\nwant\n%s", got, want)
	}
}

// A file name in any section is relative to the directory of the configuration file.
func TestFilesAreRelativeToTheConfiguration(t *testing.T) {
	c, err := config.Parse("/etc/ns/n.yaml", []byte(`
device-defaults: {tls: {ca-file: ca.pem}, gnmi: {address: "a:2", tls: {ca-file: gnmi.pem}}}
devices: [{name: s1, address: "a:1", pipeline: {p4info: /abs/p4info.txt, device-config: dev.json}}]
plugins: {state-directory: state}
`))
	if err != nil {
		t.Fatal(err)
	}
	d := c.Devices[0]
	got := []string{d.TLS.CAFile, d.GNMI.TLS.CAFile, d.Pipeline.P4Info, d.Pipeline.DeviceConfig, c.Plugins.Directory,
		c.Plugins.StateDirectory}
	want := []string{"/etc/ns/ca.pem", "/etc/ns/gnmi.pem", "/abs/p4info.txt", "/etc/ns/dev.json", "/etc/ns/plugins",
		"/etc/ns/state"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Values that a plugin receives have the types that YAML 1.2 gives them.
func TestPlainValues(t *testing.T) {
	c := parse(t, `plugins: {instances: [{plugin: x,
  config: {a: 0x10, b: 1e-3, c: "1e3", d: true, e: ~, f: 1.5, g: !!str 5, h: -7, i: yes}}]}`)
	want := map[string]any{"a": uint64(16), "b": 1e-3, "c": "1e3", "d": true, "e": nil, "f": 1.5, "g": "5",
		"h": int64(-7), "i": "yes"}
	if diff := cmp.Diff(any(want), c.Plugins.Instances[0].Config.Value()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNestingIsBounded(t *testing.T) {
	for _, text := range []string{strings.Repeat("[", 1<<16), strings.Repeat("- ", 1<<16),
		"a: " + strings.Repeat("{b: ", 1000)} {
		_, err := config.Parse("n.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), "nested more than 64 deep") {
			t.Errorf("%.20s: %v", text, err)
		}
	}
}

func TestTLSClient(t *testing.T) {
	store := certs.New(certs.Options{})
	for want, bad := range map[string]config.TLS{
		"ca-file":            {CAFile: "none.pem"},
		"no PEM certificate": {CAFile: "config_test.go"},
		"cert-file":          {CertFile: "none.pem", KeyFile: "none.key"},
	} {
		if _, err := bad.Client(store, "h:1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", bad, err, want)
		}
	}
	if c, err := (config.TLS{ServerName: "leaf1"}).Client(store, "h:1"); err != nil || c.ServerName != "leaf1" {
		t.Errorf("client %+v, error %v", c, err)
	}
	if c, err := (config.TLS{Plaintext: true}).Client(store, "h:1"); err != nil || c != nil {
		t.Errorf("plaintext: client %+v, error %v", c, err)
	}
}

// TestMessagesHideSecrets: no message contains the text of a secret, whether another value is
// written at a secret's key or a secret at another key.
func TestMessagesHideSecrets(t *testing.T) {
	const secret = "Hunter2"
	const devices = "devices: [{name: a, address: 'a:1', device-id: 1}]\n"
	output := "outputs:\n  - type: influxdb\n    url: http://127.0.0.1:1\n    token: %s\n"
	for name, text := range map[string]string{
		"alias":               fmt.Sprintf(output, "*Hunter2"),
		"anchor":              fmt.Sprintf(output, "&Hunter2"),
		"tag":                 fmt.Sprintf(output, "!Hunter2 [x]"),
		"comma":               "outputs: [{type: influxdb, url: \"http://h:1\", token: ab,Hunter2, bucket: b}]",
		"commas":              "outputs: [{type: influxdb, url: \"http://h:1\", token: ab,cd,Hunter2}]",
		"comma and colon":     "outputs: [{type: influxdb, url: \"http://h:1\", token: ab,Hunter2:cd}]",
		"next line":           fmt.Sprintf(output, "\n    Hunter2: x"),
		"no space":            "outputs: [{type: influxdb, token:Hunter2: 1}]",
		"equals sign":         "outputs:\n  - type: influxdb\n    token=Hunter2: 1\n",
		"quoted as a whole":   "outputs:\n  - type: influxdb\n    \"token: Hunter2\": 1\n",
		"reserved":            fmt.Sprintf(output, "@Hunter2"),
		"backtick":            fmt.Sprintf(output, "`Hunter2"),
		"percent":             fmt.Sprintf(output, "%Hunter2: x: y"),
		"colon":               fmt.Sprintf(output, "a: Hunter2: b"),
		"open quote":          fmt.Sprintf(output, `"Hunter2`),
		"open single quote":   fmt.Sprintf(output, `'Hunter2`),
		"text after a quote":  fmt.Sprintf(output, `"a"Hunter2`),
		"unknown escape":      fmt.Sprintf(output, `"\\H\qHunter2"`),
		"flow mapping":        fmt.Sprintf(output, "{Hunter2, Hunter2}"),
		"open flow mapping":   fmt.Sprintf(output, "{Hunter2"),
		"flow list":           fmt.Sprintf(output, "[Hunter2]"),
		"open flow list":      fmt.Sprintf(output, "[Hunter2"),
		"merge":               fmt.Sprintf(output, "{<<: Hunter2}"),
		"open variable":       fmt.Sprintf(output, "${Hunter2"),
		"variable":            fmt.Sprintf(output, "a${Hunter2}b"),
		"key given twice":     fmt.Sprintf(output, "a") + "    token: Hunter2\n",
		"second document":     fmt.Sprintf(output, "a") + "---\nHunter2\n",
		"beside another key":  "outputs: [{type: influxdb, token: Hunter2, flush-interval: x}]\n",
		"at a mistyped key":   fmt.Sprintf("outputs:\n  - type: influxdb\n    tokn: %s\n", "Hunter2"),
		"before another key":  "cluster: {nats: {addresses: [x], password: Hunter2}}\n",
		"below its key":       "outputs:\n  - token:\n      Hunter2: a: b\n",
		"another tag":         fmt.Sprintf(output, "!Hunter2 x"),
		"alias of a secret":   fmt.Sprintf(output, "&a Hunter2!") + "epoch: {interval: *a}\n",
		"alias as a name":     fmt.Sprintf(output, "&a Hunter2!") + "name: *a\n",
		"user of an address":  "devices: [{name: a, address: 'admin:Hunter2@10.0.0.1:9559', device-id: 1}]\n",
		"user of a listener":  "http: {address: 'admin:Hunter2@:9100'}\n",
		"Latin-1":             fmt.Sprintf(output, "Hunter2\xe9"),
		"as a mapping":        "outputs: Hunter2\n",
		"as a section":        "agents:\n  tls: Hunter2\n",
		"as a list":           "devices: Hunter2\n",
		"variable as number":  "devices: [{name: a, address: 'a:1', device-id: '${SECRET}'}]\n",
		"variable as address": "devices: [{name: a, address: '${SECRET}', device-id: 1}]\n",
		"variable as name": "devices: [{name: '${SECRET}', address: 'a:1'}, {name: '${SECRET}', address: 'b:1'}]\n" +
			"name: '-'\n",
		"variable in a port":   devices + "links: [{from: '${SECRET}/1', to: 'a/1'}]\n",
		"variable as a device": devices + "plugins: {instances: [{plugin: x, devices: ['${SECRET}']}]}\n",
		"variable given twice": devices + "hosts: [{name: h, port: a/1, mac: '${SECRET}'}, {name: h, port: a/1}]\n",
		"variable as time":     "epoch: {interval: '${SECRET}'}\n",
		"tabs":                 "outputs:\n\t- token: Hunter2\n",
		"indentation":          fmt.Sprintf(output, "a") + "   Hunter2\n",
	} {
		_, err := config.ParseEnv("n.yaml", []byte(text), func(name string) (string, bool) {
			return secret, name == "SECRET"
		})
		if err == nil {
			var section settings.Section
			if section, err = yaml.Section("n.yaml", text); err == nil {
				err = section.Decode(new(struct {
					Outputs []struct {
						Token settings.Secret `yaml:"token"`
					} `yaml:"outputs"`
				}))
			}
		}
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
		var problems settings.Problems
		if errors.As(err, &problems) {
			for _, p := range problems {
				if strings.Contains(p.Excerpt, secret) {
					t.Errorf("%s: excerpt\n%s", name, p.Excerpt)
				}
			}
		}
	}
}

// TestLinesOfSecrets: a login with a line end, as a file or a block of text gives it, is refused
// when it is read: no server would accept it.
func TestLinesOfSecrets(t *testing.T) {
	const device = "devices: [{name: a, address: 'a:1', device-id: 1%s}]\n"
	for at, text := range map[string]string{
		"devices[0].gnmi.username": fmt.Sprintf(device, ", gnmi: {address: 'a:2', username: '${SECRET}', password: p}"),
		"devices[0].gnmi.password": fmt.Sprintf(device, ", gnmi: {address: 'a:2', username: u, password: \"Hunter2\\r\\n\"}"),
		"cluster.nats.username": fmt.Sprintf(device, "") +
			"cluster: {nats: {addresses: [a:1], username: \"Hunter2\\t\"}}\n",
	} {
		_, err := config.ParseEnv("n.yaml", []byte(text), func(name string) (string, bool) {
			return "Hunter2\n", name == "SECRET"
		})
		if text := fmt.Sprint(err); !strings.Contains(text, at+": a line end or another control character") ||
			strings.Contains(text, "Hunter2") {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// TestScalars: a text is what is written, a number has one meaning, and a variable follows the
// rules of a shell.
func TestScalars(t *testing.T) {
	type values struct {
		Text   string  `yaml:"text"`
		Number int     `yaml:"number"`
		Float  float64 `yaml:"float"`
	}
	t.Setenv("NETSKETCH_TEST_EMPTY", "")
	for text, want := range map[string]any{
		"text: 12e4567": values{Text: "12e4567"},
		"text: 0123":    values{Text: "0123"},
		"text: 1_000":   values{Text: "1_000"},
		"text: .inf":    values{Text: ".inf"},
		"text: true":    values{Text: "true"},
		"text: 0x1F":    values{Text: "0x1F"},
		"\ufefftext: a": values{Text: "a"},
		"\ufeff\ufeff---\n\ufefftext: a\r\n\ufeff# joined\r\n\ufeffnumber: 3": values{Text: "a", Number: 3},
		"text: a\ufeffb":                                               values{Text: "a\ufeffb"},
		"\xff\xfe\x00\x00t\x00\x00\x00":                                "is UTF-32; save it as UTF-8",
		"text: ${NETSKETCH_TEST_EMPTY:-b}":                             values{Text: "b"},
		"text: a${NETSKETCH_TEST_EMPTY}b":                              values{Text: "ab"},
		"text: ${NETSKETCH_TEST_UNSET_9:-a${NETSKETCH_TEST_EMPTY:-b}}": values{Text: "ab"},
		"text: ${NETSKETCH_TEST_UNSET_9:-$$}}":                         values{Text: "$}"},
		"text: a${NETSKETCH_TEST_EMPTY-b}":                             values{Text: "a"},
		"text: ${NETSKETCH_TEST_UNSET_9-a-b:-c}":                       values{Text: "a-b:-c"},
		"text: ${NETSKETCH_TEST_UNSET_9:-}x":                           values{Text: "x"},
		"%YAML 1.1\n---\ntext: a":                                      values{Text: "a"},
		"---\ntext: a\n...":                                            values{Text: "a"},
		"text: !!str 7":                                                values{Text: "7"},
		"text: !vault a":                                               "put a text that begins with ! in quotes",
		"text: \"!vault\"":                                             values{Text: "!vault"},
		"text: !!binary aGVsbG8=":                                      "put a text that begins with ! in quotes",
		"a: 1\ntext: caf\xe9":                                          "2:1: this line is not UTF-8",
		"\xff\xfet\x00":                                                "is UTF-16; save it as UTF-8",
		"text: a\n\x00\x00\x00":                                        "this line has zero bytes",
		"text: a\r\nnumber: 3\r":                                       values{Text: "a", Number: 3},
		"number: 0x10":                                                 values{Number: 16},
		"number: 0o10":                                                 values{Number: 8},
		"number: 0":                                                    values{},
		"number: -7":                                                   values{Number: -7},
		"float: 1e3":                                                   values{Float: 1000},
		"number: 010":                                                  "leave the zeros out",
		"number: 009":                                                  "leave the zeros out",
		"number: -010":                                                 "leave the zeros out",
		"float: .nan":                                                  "expected a number",
		"float: 1e999":                                                 "out of range",
		"number: ${NETSKETCH_TEST_UNSET_9}":                            "NETSKETCH_TEST_UNSET_9 is not set",
		"number: ${NETSKETCH_TEST_EMPTY:-12}":                          values{Number: 12},
	} {
		file := filepath.Join(t.TempDir(), "n.yaml")
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var got values
		section, err := yaml.Load(file)
		if err == nil {
			err = section.Decode(&got)
		}
		if message, ok := want.(string); ok {
			if err == nil || !strings.Contains(err.Error(), message) {
				t.Errorf("%s: %v, want an error with %q", text, err, message)
			}
		} else if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
}

// A plugin that is named by its path has the name of the file, without the prefix of plugins'
// files.
func TestNameOfPath(t *testing.T) {
	c, err := config.Parse("netsketch.yaml", []byte("plugins: {instances: [{plugin: /opt/netsketch-plugin-mine}]}"))
	if err != nil || c.Plugins.Instances[0].Name != "mine" {
		t.Errorf("%v, %+v", err, c)
	}
}

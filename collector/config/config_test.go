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

	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/collector/topology"
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

// Every file in testdata/bad gives exactly the problems in the .err file beside it.
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
			var ps config.Problems
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

func TestFullFile(t *testing.T) {
	c := full(t)
	if got, want := c.Epoch, (config.Epoch{Interval: 500 * time.Millisecond, Guard: 5 * time.Millisecond, Drain: 10 * time.Millisecond, Deadline: 400 * time.Millisecond}); got != want {
		t.Errorf("epoch %+v, want %+v", got, want)
	}
	leaf2 := config.Device{
		Name: "leaf2", Address: "[::1]:9002", DeviceID: 2, Role: config.RoleEdge, Mode: config.ModePrimary,
		ElectionID: config.ElectionID{High: 1, Low: 5}, Pipeline: config.Pipeline{Name: "univmon-300k"},
		Forwarding: config.ForwardingManaged, Timeout: 5 * time.Second, TLS: config.TLS{Plaintext: true},
	}
	if diff := cmp.Diff(leaf2, c.Devices[1]); diff != "" {
		t.Errorf("leaf2 (-want +got):\n%s", diff)
	}
	spine := c.Devices[2]
	if spine.Role != config.RoleTransit || spine.Mode != config.ModeBackup || spine.Pipeline != (config.Pipeline{Keep: true}) {
		t.Errorf("spine1 %+v", spine)
	}
	if got, want := c.Hosts[1].Addresses[0].Prefix, netip.MustParsePrefix("10.0.2.0/24"); got != want {
		t.Errorf("h2 address %s, want %s", got, want)
	}
	if got, want := c.Hosts[0].Addresses[0].Prefix, netip.MustParsePrefix("10.0.1.1/32"); got != want {
		t.Errorf("h1 address %s, want %s", got, want)
	}
	p := c.Plugins.Instances[0]
	if p.Name != "univmon" || p.Deadline != 500*time.Millisecond || !p.Selects("leaf7") || p.Selects("spine1") {
		t.Errorf("plugin %+v", p)
	}
	js, err := p.Config.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(js), `{"big":18446744073709551615,"dimensions":["src","5-tuple"],"threshold":0.005,"token":"s3cr3t"}`; got != want {
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
	slog.New(slog.NewJSONHandler(&log, nil)).Info("started", "config", c.Plugins.Instances[0].Environment, "secret", c.Plugins.Instances[0].Environment["LICENSE"])
	slog.New(slog.NewTextHandler(&log, nil)).Info("started", "config", c.Plugins.Instances[0].Environment)
	fmt.Fprintf(&log, "%v %+v %#v", c.Plugins.Instances[0].Environment, c.Plugins.Instances[0].Environment, c.Plugins.Instances[0].Environment)
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
	Listen string        `yaml:"listen"`
	Every  time.Duration `yaml:"every"`
	Limit  config.Size   `yaml:"limit"`
	Token  config.Secret `yaml:"token"`
	Peers  []struct {
		Name string `yaml:"name"`
	} `yaml:"peers"`
}

func (c outputConfig) Validate() error {
	var errs config.KeyErrors
	if c.Listen == "" {
		errs.Add("listen", "is missing; expected host:port")
	}
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
		{"values over defaults", "outputs:\n  x: {listen: ':1', limit: 64KiB, token: '${T}', peers: [{name: p}]}",
			outputConfig{Listen: ":1", Every: time.Minute, Limit: 64 << 10, Token: "tok", Peers: []struct {
				Name string `yaml:"name"`
			}{{"p"}}}, ""},
		{"a near miss", "outputs:\n  x:\n    lisen: ':1'\n    peers: [{nam: p}]", outputConfig{},
			"n.yaml:3: outputs.x: unknown key \"lisen\": did you mean \"listen\"?\n" +
				"n.yaml:4: outputs.x.peers[0]: unknown key \"nam\": did you mean \"name\"?"},
		{"validate places its errors", "outputs:\n  x:\n    every: 1s\n    limit: 2GiB", outputConfig{},
			"n.yaml:3: outputs.x.listen: is missing; expected host:port\nn.yaml:4: outputs.x.limit: is more than 1GiB"},
		{"a size", "outputs:\n  x: {limit: lots}", outputConfig{},
			"n.yaml:2: outputs.x.limit: expected a size in bytes, such as 65536, 64KiB or 10MB; found \"lots\""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := config.ParseEnv("n.yaml", []byte(test.text), env("T", "tok"))
			if err != nil {
				t.Fatal(err)
			}
			got := outputConfig{Every: time.Minute}
			err = c.Outputs["x"].Decode(&got)
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
		"${A}": "1", "x${A}y${A}": "x1y1", "$$A": "$A", "$A": "$A", "${B:-b}": "b", "${A:-b}": "1", "50$": "50$", "${E}": "",
	} {
		c, err := config.ParseEnv("n.yaml", []byte("outputs: {x: {listen: '"+text+"'}}"), env("A", "1", "E", ""))
		if err != nil {
			t.Fatal(err)
		}
		v, err := c.Outputs["x"].Value()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := v.(map[string]any)["listen"]; got != want {
			t.Errorf("%s gives %q, want %q", text, got, want)
		}
	}
}

func TestSizeText(t *testing.T) {
	for text, want := range map[string]string{"1.5KiB": "1536", "2MiB": "2MiB", "10 MB": "10000000", "0": "0"} {
		var s config.Size
		if err := s.UnmarshalText([]byte(text)); err != nil || s.String() != want {
			t.Errorf("%s gives %s, %v; want %s", text, s, err, want)
		}
	}
	for _, text := range []string{"-1", "1PB", "", "NaN", "1e30GB"} {
		var s config.Size
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
		var ps config.Problems
		if err != nil && (!errors.As(err, &ps) || len(ps) == 0) {
			t.Fatalf("error is not a list of problems: %v", err)
		}
	})
}

// The configuration that ships is sound.
func TestShippedConfiguration(t *testing.T) {
	c, err := config.Load("../../configs/netsketch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Devices) != 3 || c.Devices[2].Role != config.RoleTransit || len(c.Plugins.Instances) != 1 {
		t.Errorf("%+v", c)
	}
}

func TestTopologyOfAConfiguration(t *testing.T) {
	topo, err := full(t).Topology()
	if err != nil {
		t.Fatal(err)
	}
	// On the way from h1 to h2.
	for name, want := range map[string]uint32{"leaf1": 1, "spine1": 2, "leaf2": 2} {
		h2, ok := topo.Host("h2")
		if !ok || len(h2.Prefixes) == 0 {
			t.Fatalf("no host h2 with a prefix: %+v", h2)
		}
		r := topo.Routes(name)
		i := slices.IndexFunc(r.Routes, func(r topology.Route) bool { return r.Prefix == h2.Prefixes[0] })
		if i < 0 {
			t.Errorf("%s has no route to h2: %+v", name, r)
			continue
		}
		if g, ok := r.Group(r.Routes[i].Group); !ok || len(g.Hops) != 1 || g.Hops[0].Port != want {
			t.Errorf("%s: to h2 by %+v, want port %d", name, g.Hops, want)
		}
	}
}

func TestLocate(t *testing.T) {
	c := parse(t, "plugins:\n  instances:\n    - plugin: x\n      config:\n        dimensions:\n          - src\n          - {key: dst,\n             rows: 3}\n")
	s := c.Plugins.Instances[0].Config
	for field, want := range map[string]string{
		"dimensions.1.rows": "n.yaml:8 plugins.instances[0].config.dimensions[1].rows",
		"dimensions.0":      "n.yaml:6 plugins.instances[0].config.dimensions[0]",
		"dimensions.1.cols": "n.yaml:7 plugins.instances[0].config.dimensions[1].cols",
		"dimensions.9":      "n.yaml:6 plugins.instances[0].config.dimensions.9",
		"":                  "n.yaml:5 plugins.instances[0].config",
		"levels":            "n.yaml:5 plugins.instances[0].config.levels",
	} {
		at, path := s.Locate(field)
		if got := at.String() + " " + path; got != want {
			t.Errorf("%q is at %q, want %q", field, got, want)
		}
	}
	if at, path := (config.Section{}).Locate("x"); at.Line != 0 || path != "x" {
		t.Errorf("in no section: %s %s", at, path)
	}
}

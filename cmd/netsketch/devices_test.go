// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/collector/cluster/plans"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/yang"
)

// A switch starts without device id and port numbers. A plan shows them; when it is carried out,
// P4Runtime connects and packets are measured. Revert takes all back.
func TestDevices(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.pcap")
	sw := startSwitch(t, "--unconfigured", "--name", "leaf1", "--port", "1="+udp(t, 500)+",", "--port", "2=,"+out,
		"--play-after", "2s")
	dir := t.TempDir()
	file := filepath.Join(dir, "netsketch.yaml")
	c := startCollector(t, dir, fmt.Sprintf(`
epoch: {interval: 500ms}
device-configuration: {directory: state}
devices:
  - name: leaf1
    address: %[1]s
    device-id: 7
    pipeline: univmon
    forwarding: managed
    timeout: 30s
    tls: {plaintext: true}
    gnmi:
      address: %[1]s
      tls: {plaintext: true}
      configure: apply
      ports:
        - {number: 1, interface: port 1, description: to h1}
        - {number: 2, interface: port 2}
hosts:
  - {name: h1, port: leaf1/1, mac: "02:00:00:00:00:01", addresses: [10.0.0.1]}
  - {name: h2, port: leaf1/2, mac: "02:00:00:00:00:02", addresses: [10.0.0.2]}
plugins: {directory: %[2]s, instances: [{plugin: univmon}]}
outputs:
  - {type: gnmi, address: "127.0.0.1:0", tls: {plaintext: true}}
`, sw.addr, plugins))
	gnmi := c.wait(`msg="serving gNMI" output=gnmi address=(\S+)`)
	run := func(code int, args ...string) string {
		t.Helper()
		text, err := command(t, "", append([]string{"devices", "--config", file}, args...)...)
		if got := exitCode(err); got != code {
			t.Fatalf("devices %q: exit code %d, error %v; expected %d\n%s", args, got, err, code, text)
		}
		return text
	}
	rows := func(path string) []*resultRow {
		f := queryFlags{address: gnmi, timeout: time.Minute}
		tables, err := f.get(t.Context(), path)
		if err != nil || len(tables) == 0 {
			return nil
		}
		return tables[0].Rows
	}
	const node = "/components/component[name=integrated-circuit0]/integrated-circuit/config/node-id"
	plan := run(changesPending, "plan", "leaf1")
	for _, want := range []string{"leaf1: 4 changes", "+ " + node + `: "7"`,
		`+ /interfaces/interface[name=port 2]/config/id: "2"`, `config/description: "to h1"`} {
		if !strings.Contains(plan, want) {
			t.Errorf("plan\n%sexpected %q", plan, want)
		}
	}
	digest := regexp.MustCompile(`--plan ([0-9a-f]+)`).FindStringSubmatch(plan)[1]
	run(1, "apply", "--plan", "0000")
	if text := run(0, "apply", "--plan", digest); text != "leaf1: everything is in effect\n" {
		t.Errorf("apply: %q", text)
	}
	run(0, "plan")
	testkit.Until(t, "packets are measured", func() bool {
		for _, r := range rows("/univmon/node-summaries/node-summary") {
			if n, _ := r.Values["packets"].(uint64); n > 0 {
				return true
			}
		}
		return false
	})
	for _, r := range rows("/collector/devices/device/configuration/leaves/leaf") {
		if r.Values["status"] != "IN_EFFECT" {
			t.Errorf("%v: %v", r.Keys, r.Values)
		}
	}
	run(0, "revert", "leaf1")
	if again := run(changesPending, "plan", "--json"); !strings.Contains(again, digest) {
		t.Errorf("the plan after revert: %s", again)
	}
	testkit.Until(t, "the switch refuses controllers", func() bool {
		d := rows("/collector/devices/device[node=leaf1]/state")
		reason := ""
		if len(d) > 0 {
			reason, _ = d[0].Values["last-error"].(string)
		}
		return strings.Contains(reason, "does not have a device id")
	})
}

// The commands of the page, one after the other, print what the page says.
func TestDevicesPage(t *testing.T) {
	root, err := testkit.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/devices.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Try it")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```(?:yaml)?\n(.*?)```").FindAllStringSubmatch(section, -1)
	if len(blocks) != 4 {
		t.Fatalf("%d blocks; expected a switch, a file, the commands, and a scenario", len(blocks))
	}
	words := shellWords(strings.TrimPrefix(blocks[0][1], "$ "))[0]
	sw := startSwitch(t, strings.Fields(strings.ReplaceAll(strings.Join(words[2:], " "), ":9559", ":0"))...)
	file := strings.NewReplacer("127.0.0.1:9559", sw.addr, "127.0.0.1:9339", "127.0.0.1:0").Replace(blocks[1][1])
	dir := t.TempDir()
	t.Chdir(dir)
	c := startCollector(t, dir, file)
	gnmi := c.wait(`msg="serving gNMI" output=gnmi address=(\S+)`)
	ran := 0
	for _, part := range strings.Split("\n"+blocks[2][1], "\n$ ")[1:] {
		line, want, _ := strings.Cut(part, "\n")
		args := shellWords(line)[0][1:]
		switch args[0] {
		case "collector":
			continue
		case "query":
			if out, err := command(t, "", append(args, "--address", gnmi)...); err != nil || !strings.Contains(out, "leaf1") {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
		case "devices":
			got, err := command(t, "", args...)
			if strings.TrimSpace(got) != strings.TrimSpace(want) || err != nil && exitCode(err) != changesPending {
				t.Errorf("%s: %v\n%sexpected\n%s", line, err, got, want)
			}
			ran++
		}
	}
	if ran != 3 {
		t.Errorf("%d commands; expected plan, apply and revert", ran)
	}
}

// Without a collector, plans are made by the command; apply and revert say what to start.
func TestDevicesWithoutCollector(t *testing.T) {
	sw := startSwitch(t, "--unconfigured", "--grpc-ports", "2")
	write := func(extra string) string {
		file := filepath.Join(t.TempDir(), "netsketch.yaml")
		if err := os.WriteFile(file, fmt.Appendf(nil, `
devices:
  - {name: leaf1, address: %[1]q, device-id: 7, tls: {plaintext: true}, gnmi: {address: %[1]q, tls: {plaintext: true}}}
%[2]s`, sw.addr, extra), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, c := range []struct {
		extra string
		args  []string
		code  int
		want  string
	}{
		{"", []string{"plan"}, changesPending, "node-id: \"7\""},
		{"", []string{"plan", "leaf2"}, 1, "did you mean leaf1?"},
		{"", []string{"revert", "leaf1"}, 1, "has no device-configuration.directory"},
		{"device-configuration: {directory: state}", []string{"apply", "--plan", "x"}, 1, "collector --config"},
	} {
		text, err := command(t, "", append([]string{"devices", "--config", write(c.extra)}, c.args...)...)
		if err != nil {
			text += err.Error()
		}
		if exitCode(err) != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%q: exit code %d, %s; expected %d and %q", c.args, exitCode(err), text, c.code, c.want)
		}
	}
}

// Without a collector of a cluster, the plan restores what the record in NATS says was written.
func TestDevicesOfAClusterOffline(t *testing.T) {
	server := bustest.Server(t)
	sw := startSwitch(t, "--unconfigured", "--grpc-ports", "2")
	const eth = "/interfaces/interface[name=port 1]/config/description"
	keep := plans.NewRecords(bustest.Connect(t, "fabric", "c1", server))
	record := fmt.Sprintf(`{"format": 1, "device": "leaf1", "written": {%q: {"value": "to h1", "before": "spare"}}}`, eth)
	if _, err := keep.Save(t.Context(), "leaf1", []byte(record), 0); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(sw.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p, err := yang.ParsePath(eth)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gpb.NewGNMIClient(conn).Set(t.Context(), &gpb.SetRequest{Update: []*gpb.Update{{Path: p,
		Val: &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: "to h1"}}}}}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "netsketch.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
device-configuration: {directory: state}
cluster: {name: fabric, member: c1, nats: {addresses: [%q], tls: {plaintext: true}}}
devices:
  - {name: leaf1, address: %[2]q, device-id: 7, tls: {plaintext: true}, gnmi: {address: %[2]q, tls: {plaintext: true}}}
`, server, sw.addr), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := command(t, "", "devices", "--config", file, "plan")
	if want := "~ " + eth + `: "to h1" -> "spare"`; exitCode(err) != changesPending || !strings.Contains(text, want) {
		t.Errorf("exit code %d, %v\n%sexpected %s", exitCode(err), err, text, want)
	}
}

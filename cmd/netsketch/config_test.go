// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
)

// config check loads pipelines, starts plugins, and lists problems that would keep a collector
// from working.
func TestConfigCheck(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	example, err := os.ReadFile("../../configs/netsketch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	good := strings.NewReplacer("../bin/plugins", plugins, "127.0.0.1:9559", listener.Addr().String()).
		Replace(string(example))
	scenario, err := os.ReadFile("../../examples/chamelemon/small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	program, err := filepath.Abs(exampleProgram)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.ReadFile(strings.TrimSuffix(program, ".json") + ".p4info.txtpb")
	if err != nil {
		t.Fatal(err)
	}
	otherObject := filepath.Join(t.TempDir(), "129.p4info.txtpb")
	info = bytes.Replace(info, []byte("int64_value: 128"), []byte("int64_value: 129"), 1)
	if err := os.WriteFile(otherObject, info, 0o600); err != nil {
		t.Fatal(err)
	}
	withPlugin := func(lines string) string {
		return strings.Replace(good, "    - plugin: univmon\n", "    - plugin: univmon\n"+lines, 1)
	}
	for _, c := range []struct {
		name, text string
		args       []string
		out, err   string // parts of the output and of the errors; an empty err expects no error
	}{
		{name: "valid", text: good, out: "valid: 3 devices, 1 plugin, 1 output"},
		{name: "pipeline", text: strings.Replace(good, "pipeline: univmon", "pipeline: univmo", 1),
			err: `device leaf1: pipeline univmo: no compiled P4 program "univmo"; did you mean "univmon"?`},
		{name: "plugin", text: withPlugin("    - plugin: camelemon\n"),
			err: `plugin camelemon: not in ` + plugins + `; did you mean "chamelemon"?`},
		{name: "key of a plugin", text: withPlugin("      config: {dimensons: []}\n"),
			err: `plugins.instances[0].config: unknown key "dimensons": did you mean "dimensions"?`},
		{name: "the file alone", text: withPlugin("    - plugin: camelemon\n"), args: []string{"--file-only"},
			out: "valid: 3 devices, 2 plugins, 1 output"},
		{name: "no outputs", text: good[:strings.Index(good, "outputs:")], out: "valid: 3 devices, 1 plugin, 0 outputs",
			err: "warning: outputs: the list is empty"},
		{name: "no registers", text: strings.ReplaceAll(good, "pipeline: univmon", "pipeline: forwarding"),
			err: "no epoch can be complete: there are no host agents (agents.address), and nothing is measured at switches: " +
				"device leaf1: program forwarding has no registers"},
		{name: "an object that the program does not answer",
			text: strings.ReplaceAll(good, "pipeline: univmon",
				"pipeline: {p4info: "+otherObject+", device-config: "+program+"}"),
			err: "n.yaml: program " + program + ": register ingress.own.slots: the program does not answer a read-out of " +
				"object 129, bank 1, from cell 0"},
		{name: "registers of some switches", out: "valid: 3 devices",
			err:  "spine1 is on paths of packets and does not measure",
			text: strings.Replace(good, "device-id: 3", "device-id: 3, pipeline: forwarding", 1)},
		{name: "agents without registers", text: strings.ReplaceAll(good, "pipeline: univmon", "pipeline: forwarding") +
			"agents: {address: \"127.0.0.1:0\", tls: {plaintext: true}}\n",
			out: "valid: 3 devices", err: "warning: plugin univmon misses @netsketch_univmon[columns, key, levels, part="},
		{name: "line ends in logins", text: good[:strings.Index(good, "outputs:")] + "outputs:\n" +
			"  - {type: gnmi, username: \"u\\n\", password: p, tls: {plaintext: true}}\n" +
			"  - {type: web, username: u, password: \"p\\n\", tls: {plaintext: true}}\n" +
			"  - {type: influxdb, url: http://127.0.0.1:1, bucket: b, token: \"t\\r\"}\n",
			err: "outputs[2].token: a line end or another control character is in it"},
		{name: "scenario", text: string(scenario), out: "valid: scenario chamelemon-small; play it with",
			args: []string{"--plugins", plugins}},
		{name: "scenario with another plugin",
			text: strings.Replace(string(scenario), "plugin: chamelemon", "plugin: chamelemonn", 1),
			args: []string{"--plugins", plugins}, err: "algorithms[0]: "},
		{name: "scenario with a wrong output",
			text: string(scenario) + "outputs: [{type: influxdb, url: 'http://a:b@c:1', bucket: b}]\n", err: "contains a user"},
		{name: "wrong scenario", text: strings.Replace(string(scenario), "epochs:", "epoch:", 1), err: "epoch"},
		{name: "unreachable", text: strings.Replace(good, "127.0.0.1:9560", closed.Addr().String(), 1),
			args: []string{"--dial"}, err: "device leaf2: P4Runtime: dial tcp " + closed.Addr().String()},
		{name: "a device without values", args: []string{"--dial"},
			text: strings.Replace(good, `"127.0.0.1:9560", `, `"`+listener.Addr().String()+`", gnmi: {address: "`+
				silentSwitch(t)+`", tls: {plaintext: true}}, `, 1),
			err: "device leaf2: gNMI: the switch accepts the subscriptions and sends no value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "n.yaml")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, problems bytes.Buffer
			cmd := root()
			cmd.SetOut(&out)
			cmd.SetErr(&problems)
			cmd.SetArgs(append([]string{"config", "check", path}, c.args...))
			err := cmd.ExecuteContext(t.Context())
			if (err == nil) != (c.out != "") {
				t.Errorf("error %v, output %q, errors:\n%s", err, &out, &problems)
			}
			if !strings.Contains(out.String(), c.out) || c.out == "" && out.Len() > 0 {
				t.Errorf("output %q, want %q", &out, c.out)
			}
			if !strings.Contains(problems.String(), c.err) || c.err == "" && problems.Len() > 0 {
				t.Errorf("errors %q, want %q", &problems, c.err)
			}
			if strings.Contains(problems.String(), "leaf1: P4Runtime") {
				t.Errorf("leaf1 accepts connections:\n%s", &problems)
			}
		})
	}
}

// silent serves gNMI and syncs every subscription without a value.
type silent struct{ gpb.UnimplementedGNMIServer }

// Subscribe implements gpb.GNMIServer.
func (silent) Subscribe(s gpb.GNMI_SubscribeServer) error {
	sync := &gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_SyncResponse{SyncResponse: true}}
	if err := s.Send(sync); err != nil {
		return err
	}
	<-s.Context().Done()
	return s.Context().Err()
}

func silentSwitch(t *testing.T) (address string) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rpc := grpc.NewServer()
	gpb.RegisterGNMIServer(rpc, silent{})
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(lis) }()
	t.Cleanup(func() {
		rpc.Stop()
		<-served
	})
	return lis.Addr().String()
}

// The modules that yang export writes can be loaded again.
func TestYangExport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "modules")
	if out, err := command(t, "", "yang", "export", dir, "--plugins", plugins); err != nil ||
		!strings.Contains(out, " modules") {
		t.Fatalf("%q, %v", out, err)
	}
	none := t.TempDir()
	for name, plugins := range map[string]string{"netsketch-univmon": plugins, "netsketch-types": none,
		"openconfig-interfaces": none, "ietf-yang-types": none} {
		text, err := os.ReadFile(filepath.Join(dir, name+".yang"))
		if err != nil {
			t.Fatal(err)
		}
		shown, err := command(t, "", "yang", "show", name, "--plugins", plugins)
		if err != nil || shown != string(text) {
			t.Errorf("%s: the file differs from what is shown, or %v", name, err)
		}
	}
}

// config network prints what plugins receive: switches with their registers and annotations.
func TestConfigNetwork(t *testing.T) {
	const file = "../../configs/netsketch.yaml"
	out, err := command(t, "", "config", "network", file, "univmon")
	for _, want := range []string{`"name": "leaf1"`, `"netsketch_univmon": {`, `"width": 32`} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v, want %s:\n%.400s", err, want, out)
		}
	}
	if _, err := command(t, "", "config", "network", file, "other"); err == nil ||
		!strings.Contains(err.Error(), `no plugin has the name "other"`) {
		t.Error(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/selfstate"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
)

const listReload = selfstate.Root + "/reload/state"

// reload reloads the configuration from a YAML text and returns the error.
func (r *rig) reload(yaml string) error {
	r.t.Helper()
	_, err := r.c.Reload(r.t.Context(), parseConfig(r.t, yaml))
	return err
}

// expectReload waits for the leaves of the latest reload.
func (r *rig) expectReload(status, reason string) {
	r.t.Helper()
	testkit.Until(r.t, "the reload is "+status+": "+reason, func() bool {
		rows := r.rows("", listReload, "status", "reason", "removal")
		return len(rows) == 1 && strings.Contains(rows[0], "status="+status) && strings.Contains(rows[0], reason)
	})
}

// A device that cannot be set up when the collector starts is missing from epochs with its reason,
// until a reload finds that it can be set up.
func TestDeviceThatCannotBeSetUp(t *testing.T) {
	dir := t.TempDir()
	yaml := devicesYAML(1) + `
  - {name: s2, address: "127.0.0.1:1001", device-id: 1, pipeline: nothing, tls: {plaintext: true}}
  - {name: s3, address: "127.0.0.1:1002", device-id: 1, tls: {ca-file: none.pem}}
  - {name: s4, address: "127.0.0.1:1003", device-id: 1, tls: {plaintext: true},
     pipeline: {p4info: ` + dir + `/p.txt, device-config: ` + dir + `/c.json}}
  - {name: s5, address: "127.0.0.1:1004", tls: {plaintext: true},
     gnmi: {address: "127.0.0.1:1", tls: {plaintext: true}}}
` + pluginsYAML(t, "fake")
	r := newRig(t, yaml, func(d *Dependencies) {
		d.Programs = func(name string) (*p4rt.Program, error) {
			if name == "nothing" {
				return nil, errors.New("no such pipeline")
			}
			return fakePrograms(name)
		}
	})
	rep := r.step()
	if rep.Status != epoch.Partial || len(rep.Devices) != 5 {
		t.Fatalf("report %+v", rep)
	}
	for i, want := range []string{"", "pipeline nothing: no such pipeline", "ca-file", "c.json: no such file",
		"no device-id"} {
		if err := rep.Devices[i].Err; (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", rep.Devices[i].Name, err, want)
		}
	}
	if n := strings.Count(r.log.String(), "device cannot be set up"); n != 4 {
		t.Errorf("%d lines, want one per device:\n%s", n, r.log)
	}
	if e := r.plugins["fake"].epochs[0]; !slices.Equal(e.Expected, []string{"s1", "s2", "s3", "s4", "s5"}) ||
		len(e.Missing) != 4 {
		t.Errorf("the plugin expects %v, and %+v are missing", e.Expected, e.Missing)
	}
	expectRows(t, r.rows("", listDevices, "state/connection")[1:], "[node=s2] connection=DOWN",
		"[node=s3] connection=DOWN", "[node=s4] connection=DOWN", "[node=s5] connection=DOWN")

	writeFile(t, dir+"/c.json", "{}")
	writeFile(t, dir+"/p.txt", p4infoText(t, "univmon-300k"))
	if err := r.reload(yaml); err != nil { // the file is unchanged, but the pipeline's files have changed
		t.Fatal(err)
	}
	testkit.Until(t, "s4 is measured", func() bool { return r.step().Devices[3].Err == nil })
	if n := r.devices["s3"].cfg.Fault; n == nil || r.devices["s1"].closed || r.devices["s2"].closed {
		t.Errorf("a device was replaced that the reload does not concern: fault of s3 %v", n)
	}
}

// TestPipelineFilesChange: a reload replaces the devices whose pipeline files have other contents
// under the same names, and no other device.
func TestPipelineFilesChange(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/c.json", "{}")
	writeFile(t, dir+"/p.txt", p4infoText(t, "univmon-300k"))
	yaml := devicesYAML(1) + `
  - {name: s2, address: "127.0.0.1:1001", device-id: 1, tls: {plaintext: true},
     pipeline: {p4info: ` + dir + `/p.txt, device-config: ` + dir + `/c.json}}
` + pluginsYAML(t, "fake")
	r := newRig(t, yaml, nil)
	r.step()
	same, before := r.devices["s1"], r.devices["s2"]
	if err := r.reload(yaml); err != nil || before.closed {
		t.Fatalf("a reload without a change: %v; s2 closed %t", err, before.closed)
	}

	writeFile(t, dir+"/c.json", "")
	if err := os.Remove(dir + "/p.txt"); err != nil {
		t.Fatal(err)
	}
	if err := r.reload(yaml); err == nil || !strings.Contains(err.Error(), "device s2: pipeline") || before.closed {
		t.Fatalf("a reload without the file: %v; s2 closed %t", err, before.closed)
	}

	writeFile(t, dir+"/p.txt", p4infoText(t, "univmon-300k"))
	writeFile(t, dir+"/c.json", `{"changed": true}`)
	if err := r.reload(yaml); err != nil {
		t.Fatal(err)
	}
	if now := r.devices["s2"]; !before.closed || string(now.cfg.Session.Program.DeviceConfig) != `{"changed": true}` {
		t.Errorf("s2 closed %t, runs %s", before.closed, now.cfg.Session.Program.DeviceConfig)
	}
	if same.closed {
		t.Error("s1, whose pipeline is the same, was replaced")
	}
	testkit.Until(t, "s2 is measured again", func() bool { return r.step().Devices[1].Err == nil })
}

func p4infoText(t *testing.T, name string) string {
	t.Helper()
	p, err := compiled.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return prototext.Format(p.P4Info)
}

// A changed configuration with a device that cannot be set up is refused as a whole: the device
// keeps its old configuration.
func TestReloadThatCannotBeAppliedChangesNothing(t *testing.T) {
	base := devicesYAML(3) + pluginsYAML(t, "fake")
	for name, test := range map[string]struct{ old, new, want string }{
		"pipeline": {`"127.0.0.1:1001", device-id: 1`,
			`"127.0.0.1:1001", device-id: 1, pipeline: {p4info: none.txt, device-config: none.json}`, "none.json"},
		"TLS": {`"127.0.0.1:1001", device-id: 1, tls: {plaintext: true}`,
			`"127.0.0.1:1001", device-id: 1, tls: {ca-file: none.pem}`, "ca-file"},
		"gNMI TLS": {`"127.0.0.1:1001", device-id: 1`,
			`"127.0.0.1:1001", device-id: 1, gnmi: {address: "a:1", tls: {ca-file: none.pem}}`, "device s2: gnmi"},
		"no devices": {base[:strings.Index(base, "plugins:")], "", "it has no devices, and 3 are in use"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, base, nil)
			next := strings.Replace(base, test.old, test.new, 1)
			err := r.reload(next + "log: {level: debug}\n")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			r.expectReload("REFUSED", test.want)
			if rep := r.step(); rep.Status != epoch.Complete || len(rep.Devices) != 3 || r.devices["s2"].closed ||
				r.c.Config().Log.Level != parseConfig(t, base).Log.Level {
				t.Errorf("after a refused reload: report %+v", rep)
			}
			if err := r.reload(base); err != nil {
				t.Error(err)
			}
			r.expectReload("APPLIED", "reason= ")
		})
	}
}

// The document end marker detects cut files from the reload on that adds it, even if that reload
// changes nothing else.
func TestReloadThatAddsTheEndMarker(t *testing.T) {
	base := devicesYAML(2) + pluginsYAML(t, "fake")
	r := newRig(t, base, nil)
	if err := r.reload(base + "...\n"); err != nil {
		t.Fatal(err)
	}
	if err := r.reload(base); err == nil || !strings.Contains(err.Error(), "document end marker") {
		t.Errorf("error %v", err)
	}
}

// Keys that take effect after a restart are named by every reload until the file has the values in
// force again. Until then the collector and its plugins keep those values.
func TestReloadThatNeedsARestart(t *testing.T) {
	base := devicesYAML(2) + pluginsYAML(t, "fake")
	r := newRig(t, base, nil)
	was := r.c.Config().Epoch
	next := base + "epoch: {interval: 2s}\nname: other\n"
	for range 2 {
		if err := r.reload(next); err != nil {
			t.Fatal(err)
		}
		r.expectReload("APPLIED", "take effect when the collector is restarted: name, epoch")
	}
	if got := r.c.Config().Epoch; got != was {
		t.Errorf("epoch %+v, want %+v", got, was)
	}
	if p := r.plugins["fake"]; len(p.config) != 1 {
		t.Errorf("the plugin was configured %q, want once", p.config)
	}
	if err := r.reload(base); err != nil {
		t.Fatal(err)
	}
	r.expectReload("APPLIED", "reason= ")
}

// A new plugin directory takes effect after a restart. Until then, plugins.autoload runs the
// plugins of the directory in force.
func TestReloadOfThePluginDirectory(t *testing.T) {
	plugins := strings.Replace(pluginsYAML(t, "fake", "other"), "plugins:\n", "plugins:\n  autoload: true\n", 1)
	plugins = strings.Replace(plugins, "    - {plugin: other}\n", "", 1)
	before, rest, _ := strings.Cut(plugins, "  directory: ")
	_, after, _ := strings.Cut(rest, "\n")
	r := newRig(t, devicesYAML(2)+plugins, nil)
	if err := r.reload(devicesYAML(2) + before + "  directory: " + t.TempDir() + "\n" + after); err != nil {
		t.Fatal(err)
	}
	r.expectReload("APPLIED", "take effect when the collector is restarted: plugins.directory")
	if r.plugins["other"].stopped {
		t.Error("a plugin of the directory in force was stopped")
	}
}

// A configuration that removes more than the limit is held until it is requested again after the
// stated time.
func TestReloadThatRemovesTooMuchIsHeld(t *testing.T) {
	const bound = "reload: {confirm-after: 1h}\n"
	base := devicesYAML(8) + pluginsYAML(t, "fake") + bound
	r := newRig(t, base, nil)
	if err := r.reload(devicesYAML(6) + base[strings.Index(base, "plugins:"):]); err != nil {
		t.Errorf("two of eight: %v", err)
	}
	r.expectReload("APPLIED", "removal=")
	cut := devicesYAML(4) + base[strings.Index(base, "plugins:"):]
	for range 2 { // an hour has not passed
		if err := r.reload(cut); !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "2 of 6 devices (s5, s6)") {
			t.Errorf("error %v", err)
		}
	}
	r.expectReload("HELD", "removal=2 of 6 devices (s5, s6)")
	if rep := r.step(); len(rep.Devices) != 6 || rep.Status != epoch.Complete {
		t.Errorf("report %+v", rep)
	}
	whole := devicesYAML(6) + base[strings.Index(base, "plugins:"):]
	if err := r.reload(whole); err != nil { // the file is complete again
		t.Error(err)
	}
	r.expectReload("APPLIED", "removal=")
	if err := r.reload(strings.Replace(whole, "1h", "0s", 1)); err != nil {
		t.Fatal(err)
	}
	cut = strings.Replace(cut, "1h", "0s", 1)
	if err := r.reload(cut); !errors.Is(err, ErrHeld) {
		t.Errorf("error %v", err)
	}
	if _, err := r.c.reload(t.Context(), parseConfig(t, cut), false); !errors.Is(err, ErrHeld) {
		t.Errorf("a change of the file confirms: %v", err)
	}
	other := strings.Replace(cut, "s4", "s5", 1) // the cut file removes s4 and s6
	if err := r.reload(other); !errors.Is(err, ErrHeld) {
		t.Errorf("another configuration is confirmed: %v", err)
	}
	if err := r.reload(other); err != nil {
		t.Errorf("the second request of the same configuration: %v", err)
	}
	r.expectReload("APPLIED", "removal=")
	if rep := r.step(); len(rep.Devices) != 4 {
		t.Errorf("report %+v", rep)
	}
	if !strings.Contains(r.log.String(), "devices removed: s4, s6") {
		t.Errorf("the log does not name what was removed:\n%s", r.log)
	}
}

// Follow applies complete files only, and confirms a held file on request.
func TestFollowHoldsACutFile(t *testing.T) {
	base := devicesYAML(4) + pluginsYAML(t, "fake") + "reload: {confirm-after: 0s}\n"
	r := newRig(t, base, nil)
	path := filepath.Join(t.TempDir(), "netsketch.yaml")
	write := func(text string) {
		writeFile(t, path+".new", text)
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(base)
	requests := make(chan struct{})
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		r.c.Follow(ctx, path, requests)
		close(done)
	}()
	requests <- struct{}{} // once this value is received, the directory is watched
	devices := strings.Index(base, "  - {name: s2")
	plugins := strings.Index(base, "plugins:")
	for _, test := range []struct{ name, text, status, reason string }{
		{"empty", "", "REFUSED", "no devices"},
		{"cut in a line", base[:devices+12], "REFUSED", "netsketch.yaml:3:5"},
		{"cut after a device", base[:devices], "HELD", "3 of 4 devices (s2, s3, s4), 1 of 1 plugins (fake)"},
		{"cut before the last line end", strings.TrimSuffix(base, "\n"), "REFUSED", "no line end"},
		{"with a secret that is no YAML", "outputs: [{type: influxdb, token: *Hunter2}]\n" + base, "REFUSED", "in quotes"},
		{"cut before plugins", base[:plugins], "HELD", "1 of 1 plugins (fake)"},
	} {
		write(test.text)
		r.expectReload(test.status, test.reason)
		if rep := r.step(); len(rep.Devices) != 4 || rep.Status != epoch.Complete || len(rep.Plugins) != 1 {
			t.Errorf("%s: report %+v", test.name, rep)
		}
	}
	if log := r.log.String() + r.c.reloads.get().Reason; strings.Contains(log, "Hunter2") {
		t.Errorf("the log or the state has a secret:\n%s", log)
	}
	requests <- struct{}{}
	r.expectReload("APPLIED", "removal=")
	if rep := r.step(); len(rep.Plugins) != 0 || len(rep.Devices) != 4 {
		t.Errorf("after the confirmation: report %+v", rep)
	}
	cancel()
	<-done
	if st := r.c.reloads.get(); st.State != config.ReloadApplied || time.Since(st.Time) > time.Hour {
		t.Errorf("status %+v", st)
	}
}

// With plugins.watch a plugin whose file is replaced is restarted without a reload.
func TestWatchPlugins(t *testing.T) {
	yaml := devicesYAML(1) + strings.Replace(pluginsYAML(t, "fake"), "plugins:\n", "plugins:\n  watch: true\n", 1)
	r := newRig(t, yaml, nil)
	path := filepath.Join(t.TempDir(), "netsketch.yaml")
	writeFile(t, path, yaml)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		r.c.Follow(ctx, path, nil)
		close(done)
	}()
	before := r.plugins["fake"]
	before.replaced.Store(true)
	testkit.Until(t, "the plugin is restarted", func() bool {
		return strings.Count(r.log.String(), `msg="plugin runs" plugin=fake`) > 1
	})
	cancel()
	<-done
	if now := r.plugins["fake"]; now == before || !before.stopped {
		t.Errorf("stopped %t, another process %t", before.stopped, now != before)
	}
}

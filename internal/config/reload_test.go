// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/internal/config"
)

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("n.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCompare(t *testing.T) {
	const base = `
epoch: {interval: 1s}
devices:
  - {name: s1, address: "h:1", device-id: 1}
  - {name: s2, address: "h:2", device-id: 2}
plugins:
  instances:
    - {plugin: a, config: {x: 1}}
    - {plugin: b}
    - {plugin: c}
outputs: [{type: gnmi, listen: "x:1"}]
`
	type summary struct {
		Added, Removed, Changed                   []string
		PAdded, PRemoved, Reconfigured, Restarted []string
		Log                                       bool
		NeedRestart                               []string
	}
	devices := func(list []config.Device) (names []string) {
		for _, d := range list {
			names = append(names, d.Name)
		}
		return names
	}
	plugins := func(list []config.Plugin) (names []string) {
		for _, p := range list {
			names = append(names, p.Name)
		}
		return names
	}
	for _, test := range []struct {
		name, text string
		want       summary
	}{
		{"nothing", base + "# a comment\n", summary{}},
		{"devices", `
devices:
  - {name: s3, address: "h:3", device-id: 3}
  - {name: s1, address: "h:9", device-id: 1}
plugins: {instances: [{plugin: a, config: {x: 1}}, {plugin: b}, {plugin: c}]}
outputs: [{type: gnmi, listen: "x:1"}]
`, summary{Added: []string{"s3"}, Removed: []string{"s2"}, Changed: []string{"s1"}}},
		{"plugins", `
devices: [{name: s1, address: "h:1", device-id: 1}, {name: s2, address: "h:2", device-id: 2}]
plugins:
  instances: [{plugin: a, config: {x: 2}}, {plugin: b, environment: {A: "1"}}, {plugin: d}]
outputs: [{type: gnmi, listen: "x:1"}]
`, summary{PAdded: []string{"d"}, PRemoved: []string{"c"}, Reconfigured: []string{"a"}, Restarted: []string{"b"}}},
		{"what needs a restart", `
name: other
epoch: {interval: 2s}
devices: [{name: s1, address: "h:1", device-id: 1}, {name: s2, address: "h:2", device-id: 2}]
plugins:
  instances: [{plugin: a, config: {x: 1}}, {plugin: b}, {plugin: c}]
outputs: [{type: gnmi, listen: "x:2"}]
log: {level: debug}
`, summary{Log: true, NeedRestart: []string{"name", "epoch", "outputs"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := config.Compare(parse(t, base), parse(t, test.text))
			got := summary{
				devices(c.DevicesAdded), c.DevicesRemoved, devices(c.DevicesChanged),
				plugins(c.PluginsAdded), c.PluginsRemoved, plugins(c.PluginsReconfigured), plugins(c.PluginsRestarted),
				c.Log, c.NeedRestart,
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if c.Empty() != (test.name == "nothing") {
				t.Errorf("Empty is %t: %s", c.Empty(), c)
			}
		})
	}
}

func TestWatchFollowsWritesRenamesAndSignals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "netsketch.yaml")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(path, "name: one\n")
	ctx, cancel := context.WithCancel(context.Background())
	reload := make(chan struct{})
	got := make(chan config.Loaded, 16)
	done := make(chan struct{})
	go func() {
		config.Watch(ctx, path, parse(t, "name: one\n"), reload, slog.New(slog.DiscardHandler),
			func(l config.Loaded) { got <- l })
		close(done)
	}()
	defer func() {
		cancel()
		<-done
	}()
	// await skips the results of an editor's intermediate states.
	await := func(what string, ok func(config.Loaded) bool) {
		t.Helper()
		limit := time.After(2 * time.Minute)
		for {
			select {
			case l := <-got:
				if ok(l) {
					return
				}
			case <-limit:
				t.Fatalf("no reload after %s", what)
			}
		}
	}
	reload <- struct{}{} // once this value is received, the directory is watched
	await("a signal", func(l config.Loaded) bool { return l.Err == nil && l.Requested && l.Config.Name == "one" })
	write(path, "name: two\n")
	await("a write", func(l config.Loaded) bool { return l.Err == nil && !l.Requested && l.Config.Name == "two" })
	write(path+".new", "name: three\n")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	await("a rename", func(l config.Loaded) bool { return l.Err == nil && l.Config.Name == "three" })
	write(path, "nam: four\n")
	await("a bad file", func(l config.Loaded) bool { return l.Err != nil && l.Config == nil })
}

// TestWatchComparesTheFile: a changed file is read although no event reports the change, because a
// symbolic link on the way to the file was replaced or because earlier events were lost.
func TestWatchComparesTheFile(t *testing.T) {
	base := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(base, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(base, name, "n.yaml"), []byte("name: "+name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(base, "current")
	if err := os.Symlink("one", link); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	reload, got, done := make(chan struct{}), make(chan config.Loaded), make(chan struct{})
	go func() {
		config.Watch(ctx, filepath.Join(link, "n.yaml"), parse(t, "name: one\n"), reload, slog.New(slog.DiscardHandler),
			func(l config.Loaded) { got <- l })
		close(done)
	}()
	reload <- struct{}{}
	if l := <-got; l.Err != nil || l.Config.Name != "one" {
		t.Fatalf("the first file: %+v", l)
	}
	if err := errors.Join(os.Symlink("two", link+"-new"), os.Rename(link+"-new", link)); err != nil {
		t.Fatal(err)
	}
	if l := <-got; l.Err != nil || l.Requested || l.Config.Name != "two" {
		t.Errorf("behind the replaced link: %+v", l)
	}
	cancel()
	<-done
}

// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab/scenario"
)

// Environment variables.
const (
	pluginsEnv = "NETSKETCH_PLUGINS" // directory of plugins
	volumeEnv  = "NETSKETCH_VOLUME"  // "EPOCH:FILE ...": last epochs and scenarios of this repository
)

// TestVolume counts the last epoch of scenarios. `make volume` runs it. In a checkout of a commit
// before the results had one model, copy this directory to lab/volume, and add "/omnimon" and the
// other plugins to HTTP.Results of the collector's configuration in lab/scenario/run.go.
func TestVolume(t *testing.T) {
	plugins, which := os.Getenv(pluginsEnv), strings.Fields(os.Getenv(volumeEnv))
	if plugins == "" || len(which) == 0 {
		t.Skipf("slow: run make volume, which sets %s and %s", pluginsEnv, volumeEnv)
	}
	root, err := filepath.Abs(".")
	for err == nil {
		if _, err := os.Stat(filepath.Join(root, "examples")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			t.Fatal("no examples in a directory above")
		}
		root = filepath.Dir(root)
	}
	for _, text := range which {
		last, name, _ := strings.Cut(text, ":")
		epochs, err := strconv.Atoi(last)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { measure(t, filepath.Join(root, name), plugins, epochs) })
	}
}

// measure plays a scenario and logs a row for each of its plugins.
func measure(t *testing.T, file, plugins string, epochs int) {
	const quiet = 3 * time.Second
	c := &Counter{}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`plugin: ([a-z]+)`).FindAllStringSubmatch(string(text), -1) {
		c.Plugins = append(c.Plugins, m[1])
	}
	database := httptest.NewServer(c)
	defer database.Close()
	output := "\noutputs:\n  - {type: influxdb, url: \"" + database.URL + "\", bucket: netsketch, flush-interval: 50ms, " +
		"spool: {dir: " + t.TempDir() + "}}\n"
	s, err := scenario.Parse(file, []byte(string(text)+output))
	if err != nil {
		t.Fatal(err)
	}
	s.Epochs, s.Expect, s.ScoreEvery = epochs, nil, 1000
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	n := 0
	run, err := scenario.Open(t.Context(), s, scenario.Options{PluginDir: plugins, Listen: "127.0.0.1:0",
		HTTP: "127.0.0.1:0", Virtual: true, Start: time.Now().Add(time.Hour).Truncate(s.Epoch),
		OnEpoch: func(run *scenario.Run) error {
			n++
			switch n {
			case epochs - 1:
				if err := errors.Join(c.Settle(quiet), c.Follow(ctx, run.Address())); err != nil {
					return err
				}
				c.Begin()
			case epochs:
				if err := c.Settle(quiet); err != nil {
					return err
				}
				for _, name := range c.Plugins {
					v, err := c.Of(ctx, name, run.Address(), "http://"+run.Collector().HTTPAddress()+"/metrics/results")
					if err != nil {
						return err
					}
					t.Logf("| %s, epoch %d | %s | %+v |", filepath.Base(file), epochs, name, v)
				}
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = run.Play(t.Context())
	stop()
	if err = errors.Join(err, run.Close()); err != nil {
		t.Fatal(err)
	}
}

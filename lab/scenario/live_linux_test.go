// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/scenario"
)

// An interface that goes down or vanishes makes the run fail.
func TestLiveInterfaceVanishes(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	link := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", append([]string{"link"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip link %v: %v: %s", args, err, out)
		}
	}
	link("set", "dev", "lo", "up")
	link("add", "dev", "a", "type", "veth", "peer", "name", "b")
	link("set", "dev", "a", "up")
	link("set", "dev", "b", "up")
	live, err := scenario.OpenLive(t.Context(), scenario.LiveOptions{Interface: "a", PluginDir: plugins,
		Listen: "127.0.0.1:0", Epochs: 3, OnEpoch: func(l *scenario.Live) error {
			switch epochs := l.Report().Epochs; len(epochs) {
			case 1:
				link("set", "dev", "a", "down") // for less than an epoch
				time.Sleep(300 * time.Millisecond)
				link("set", "dev", "a", "up")
			case 2:
				link("del", "dev", "a")
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	report, err := live.Play(t.Context())
	if err := live.Close(); err != nil {
		t.Error(err)
	}
	const want = "interface a was down, had no carrier or was gone in 2 epochs"
	if report.OK || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("ok %v, error %v", report.OK, err)
	}
	var down []bool
	for _, e := range report.Epochs {
		down = append(down, e.Down)
	}
	if !slices.Equal(down, []bool{false, true, true}) {
		t.Errorf("epochs in which the interface was down: %v", down)
	}
}

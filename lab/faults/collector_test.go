// SPDX-License-Identifier: Apache-2.0

// Faults of the collector itself.

package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

var collectorCases = []fault{
	{
		name: "collector: kill -9 while the database is down",
		promise: "switches forward on; results after four epochs, with UnivMon's saved state; pipelines are not pushed " +
			"again; points on disk are delivered",
		needs: influx, hit: devices, back: 5,
		inject: func(t *trial) {
			t.database.set(answers(http.StatusServiceUnavailable, "", ""))
			t.pass(4)
			killed := t.recorder.last()
			saved := t.stateOnDisk("univmon") // written once per second at most, so an epoch may be missing from it
			t.require(saved > 0, "UnivMon has saved no state")
			t.collector.kill()
			pushed := t.collector.logged("pushed=true")
			t.require(pushed >= len(devices), "%d pushed pipelines in the log", pushed)
			t.elapse(2)
			t.startCollector()
			t.database.set(nil)
			t.await("UnivMon runs", func() bool { return t.plugin("univmon", "status") == "RUNNING" })
			restored := t.number("/collector/plugins/plugin[name=univmon]/state/saved-epoch")
			if t.plugin("univmon", "epochs-analyzed") == "0" { // the epoch does not belong to a newer state
				t.see("saved state restored, %d epochs old at the kill", killed-uint64(restored))
				t.require(uint64(restored) >= saved, "UnivMon has lost its state")
			}
			t.await("sessions with the switches", func() bool { return t.device("spine1", "connection") == "READY" })
			t.require(t.collector.logged("pushed=true") == pushed, "pipelines were pushed again")
			t.await("points on disk are delivered", func() bool {
				return t.database.epochs()[fmt.Sprint(killed-1)] == pointsPerEpoch
			})
			missing := 0
			for e := t.first; e < killed; e++ {
				missing += pointsPerEpoch - t.database.epochs()[fmt.Sprint(e)]
			}
			total := int(killed-t.first) * pointsPerEpoch
			t.row.lost = append(t.row.lost, lost(uint64(missing), uint64(total), "points before the last epoch"))
			t.require(missing == 0, "%d of %d points are missing", missing, total)
		},
	},
	{
		name: "collector: kill -9, with a plugin's child in another session", linux: true,
		promise: "plugins end with the collector, and the next collector ends the child",
		needs:   faulty("daemon"), hit: devices, back: 5,
		inject: func(t *trial) {
			child, plugin := t.child(), t.pid("faulty")
			t.collector.kill()
			t.within(3, "the plugin has ended", func() bool { return !alive(plugin) })
			t.startCollector()
			t.orphan(child)
		},
	},
	{
		name:    "collector: stopped for some epochs (SIGSTOP)",
		promise: "these epochs are lost, and one more; switches forward on",
		hit:     devices, back: 3,
		inject: func(t *trial) {
			t.collector.signal(syscall.SIGSTOP)
			t.elapse(4)
			t.collector.signal(syscall.SIGCONT)
		},
		check: func(t *trial) { t.quiet("leaf1", 0, 3) },
	},
	{
		name:    "collector: SIGTERM and a new start",
		promise: "ends in order with exit code 0; all points are delivered; switches forward on",
		needs:   influx, hit: devices, back: 5,
		inject: func(t *trial) {
			last := t.recorder.last()
			t.require(t.collector.terminate(), "exit code %d", t.collector.cmd.ProcessState.ExitCode())
			missing := 0
			for e := t.first; e <= last; e++ {
				missing += max(0, pointsPerEpoch-t.database.epochs()[fmt.Sprint(e)])
			}
			total := int(last-t.first+1) * pointsPerEpoch
			t.row.lost = append(t.row.lost, lost(uint64(missing), uint64(total), "points"))
			t.require(missing == 0, "%d of %d points are missing", missing, total)
			t.require(!strings.Contains(t.collector.text(), "panic"), "the log has a panic")
			t.startCollector()
		},
	},
}

// stateOnDisk returns the epoch of the saved state of a plugin.
func (t *trial) stateOnDisk(plugin string) uint64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(t.dir, "state", plugin+".state.json"))
	if err != nil {
		t.Fatal(err)
	}
	var state struct{ Epoch uint64 }
	if err := json.Unmarshal(text, &state); err != nil {
		t.Fatal(err)
	}
	return state.Epoch
}

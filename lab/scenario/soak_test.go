// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/lab/scenario"
)

// resident returns the memory that the kernel has given this process, in bytes.
func resident(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skipf("the size of the process is read from /proc, which is not there: %v", err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// 64 switches of 300 KB, epochs of one second for a minute of wall clock: no epoch is
// lost, every switch's packets are exact, memory is steady. `make soak` runs it.
func TestSoak64Switches(t *testing.T) {
	if os.Getenv("NETSKETCH_SOAK") == "" {
		t.Skip("takes more than a minute and both cores: run `make soak`, which sets NETSKETCH_SOAK")
	}
	s, err := scenario.Load("../../examples/scenarios/soak64.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var memory []int
	run, err := scenario.Open(t.Context(), s, scenario.Options{
		PluginDir: plugins, Listen: "127.0.0.1:0",
		OnEpoch: func(*scenario.Run) error {
			runtime.GC()
			memory = append(memory, resident(t))
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := run.Play(t.Context())
	if err != nil {
		t.Error(err)
	}
	if err := run.Close(); err != nil {
		t.Error(err)
	}
	check(t, r, s.Epochs)
	for _, e := range r.Epochs {
		if e.Status != "complete" {
			t.Errorf("epoch %d is %s", e.Epoch, e.Status)
		}
		for _, v := range of(e).Views {
			if v.Device != "network" && v.Packets.Measured != v.Packets.True {
				t.Errorf("epoch %d, %v: %v packets counted, %v true", e.Epoch, v.View, v.Packets.Measured, v.Packets.True)
			}
		}
	}
	early, late := memory[len(memory)/4], memory[len(memory)-1]
	t.Logf("resident memory: %d MB after a quarter, %d MB at the end", early>>20, late>>20)
	if late > early+early/5 {
		t.Errorf("memory grew from %d to %d bytes over %d epochs", early, late, len(memory)*3/4)
	}
	fmt.Printf("soak: %d epochs of %d switches; first update after %.0f ms (median), %.0f ms (worst); %d MB\n",
		len(r.Epochs), r.Switches, float64(r.Latency.MedianNS)/1e6, float64(r.Latency.WorstNS)/1e6, late>>20)
}

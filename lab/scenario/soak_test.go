// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/scenario"
)

// resident returns the memory that the kernel has given this process, in bytes.
func resident(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatalf("the size of the process is read from /proc: %v", err)
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
	var log testkit.Log // says why an epoch is not complete
	r := playWith(t, s, scenario.Options{
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		OnEpoch: func(r *scenario.Run) error {
			if len(r.Report().Epochs)%5 == 0 { // a collection takes time that the epochs need
				runtime.GC()
				memory = append(memory, resident(t))
			}
			return nil
		},
	})
	check(t, r, s.Epochs)
	scored := 0
	for _, e := range r.Epochs {
		if e.Status != "COMPLETE" {
			t.Errorf("epoch %d is %s", e.Epoch, e.Status)
		}
		if len(e.Results) == 0 {
			continue // not a scored one
		}
		scored++
		for _, v := range of(e).Views {
			if v.Device != "network" && v.Packets.Measured != v.Packets.True {
				t.Errorf("epoch %d, %v: %v packets counted, %v true", e.Epoch, v.View, v.Packets.Measured,
					v.Packets.True)
			}
		}
	}
	if t.Failed() {
		t.Logf("warnings:\n%s", log.String())
	}
	early, late := memory[len(memory)/4], memory[len(memory)-1]
	t.Logf("resident memory: %d MB after a quarter, %d MB at the end", early>>20, late>>20)
	if late > early+early/5 {
		t.Errorf("memory grew from %d to %d bytes over %d epochs", early, late, len(r.Epochs)*3/4)
	}
	if want := s.Epochs / s.ScoreEvery; scored != want {
		t.Errorf("%d epochs were scored, want %d", scored, want)
	}
	fmt.Printf("soak: %d epochs of %d switches, %d scored; first update after %.0f ms (median), %.0f ms (worst); %d MB\n",
		len(r.Epochs), r.Switches, scored, float64(r.Latency.MedianNS)/1e6, float64(r.Latency.WorstNS)/1e6, late>>20)
}

// 1,000 epochs of 50 ms on four edge switches of ChameleMon's sizes, and 240 of 250 ms with 10,000
// flows: none partial, none lost for the plugin, every scored one exact. `make sustain` runs it on
// the wall clock; with NETSKETCH_SUSTAIN=virtual it runs on a virtual one, where a slow machine
// makes no epoch partial; the times of the stages are real time on both clocks.
func TestChameleMonSustained(t *testing.T) {
	clock := os.Getenv("NETSKETCH_SUSTAIN")
	if clock == "" {
		t.Skip("takes a minute and both cores: run `make sustain`, which sets NETSKETCH_SUSTAIN")
	}
	if clock != "wall" && clock != "virtual" {
		t.Fatalf("NETSKETCH_SUSTAIN=%s: set wall or virtual", clock)
	}
	for _, name := range []string{"sustained", "sustained-flows"} {
		t.Run(name, func(t *testing.T) { sustained(t, load(t, name, 0), clock == "virtual") })
	}
}

func sustained(t *testing.T, s *scenario.Scenario, virtual bool) {
	t.Helper()
	r := playWith(t, s, scenario.Options{Virtual: virtual})
	check(t, r, s.Epochs)
	for i, e := range r.Epochs {
		if e.Status != "COMPLETE" || len(e.Failed) > 0 {
			t.Errorf("epoch %d of the run is %s; failed: %v", i+1, e.Status, e.Failed)
		}
	}
	fmt.Printf("sustained: %d epochs of %v on the %s clock\n", len(r.Epochs), s.Epoch, r.Clock)
	for _, stage := range []struct {
		name string
		of   func(scenario.Stages) int64
	}{
		{"flip", func(x scenario.Stages) int64 { return x.FlipNS }},
		{"read-out", func(x scenario.Stages) int64 { return x.ReadNS }},
		{"plugin", func(x scenario.Stages) int64 { return x.PluginNS }},
		{"all", func(x scenario.Stages) int64 { return x.TotalNS }},
	} {
		var all []int64
		for _, e := range r.Epochs {
			all = append(all, stage.of(e.Stages))
		}
		slices.Sort(all)
		ms := func(share float64) float64 { return float64(all[int(share*float64(len(all)-1))]) / 1e6 }
		fmt.Printf("  %-8s median %.1f ms, 99 %% within %.1f ms, longest %.1f ms\n", stage.name, ms(0.5), ms(0.99),
			ms(1))
	}
}

// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/settings/yaml"
)

// messages are the reports of a run about bad input: alerts over gNMI, and the log.
type messages struct {
	epochs []map[string]string // the texts of the alerts that are active after each epoch, by location and kind
	testkit.Log
}

// leaves reads a subtree over gNMI: values by path, [keys] included.
func leaves(t *testing.T, addr string, elems ...string) map[string]string {
	t.Helper()
	updates, err := once(t, connect(t, addr), path(elems...))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, u := range updates {
		name := ""
		for _, e := range u.GetPath().GetElem() {
			name += "/" + e.GetName()
			for _, k := range []string{"location", "kind", "node", "dimension", "name", "link", "flow"} {
				if v, ok := e.GetKey()[k]; ok {
					name += "[" + v + "]"
				}
			}
		}
		switch v := u.GetVal().GetValue().(type) {
		case *gnmi.TypedValue_StringVal:
			out[name] = v.StringVal
		case *gnmi.TypedValue_BoolVal:
			out[name] = fmt.Sprint(v.BoolVal)
		case *gnmi.TypedValue_UintVal:
			out[name] = fmt.Sprint(v.UintVal)
		case *gnmi.TypedValue_IntVal:
			out[name] = fmt.Sprint(v.IntVal)
		case *gnmi.TypedValue_DoubleVal:
			out[name] = fmt.Sprint(v.DoubleVal)
		default:
			t.Fatalf("%s has a value of type %T", name, v)
		}
	}
	return out
}

// playWatched plays a scenario on a virtual clock; each, when there is one, is called after each
// epoch with its number in the run, from 0.
func playWatched(t *testing.T, s *scenario.Scenario,
	each func(run *scenario.Run, i int) error,
) (*scenario.Report, *messages) {
	t.Helper()
	w := &messages{}
	r := playWith(t, s, scenario.Options{
		Virtual: true, Logger: slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo})),
		OnEpoch: func(run *scenario.Run) error {
			active := map[string]string{}
			all := leaves(t, run.Address(), "chamelemon", "alerts")
			for name, v := range all {
				if entry, ok := strings.CutSuffix(name, "/state/active"); ok && v == "true" {
					active[strings.TrimPrefix(entry, "/chamelemon/alerts/alert")] = all[entry+"/state/text"]
				}
			}
			w.epochs = append(w.epochs, active)
			if each == nil {
				return nil
			}
			return each(run, len(w.epochs)-1)
		},
	})
	return r, w
}

// alerted checks that an alert with this text was active in these epochs of the run and in no
// other, and that the log has its beginning and its end. Epochs with the alert are incomplete, and
// no victims are published as exact in them.
func (w *messages) alerted(t *testing.T, r *scenario.Report, subject, kind, text string, epochs ...int) {
	t.Helper()
	var active []int
	for i, alerts := range w.epochs {
		got, ok := alerts["["+subject+"]["+kind+"]"]
		if !ok {
			continue
		}
		active = append(active, i)
		if !strings.Contains(got, text) {
			t.Errorf("epoch %d of the run: alert %s of %s is %q; expected %q", i+1, kind, subject, got, text)
		}
		if e := losses(t, &r.Epochs[i]); e.Sure || e.Problem == "" {
			t.Errorf("epoch %d of the run: %s, and all victims exact: %v, problem %q", i+1, got, e.Sure, e.Problem)
		}
	}
	if !slices.Equal(active, epochs) {
		t.Errorf("alert %s of %s was active in epochs %v of the run, counted from 0; expected %v: %v", kind, subject,
			active, epochs, w.epochs)
	}
	begun, over := false, false
	for line := range strings.Lines(w.String()) {
		if strings.Contains(line, "alert="+kind) && strings.Contains(line, subject+": ") {
			begun = begun || strings.Contains(line, "level=WARN") && strings.Contains(line, text)
			over = over || strings.Contains(line, subject+": resolved")
		}
	}
	if !begun || !over {
		t.Errorf("%s of %s: its beginning is in the log: %v, its end: %v:\n%s", kind, subject, begun, over, w.String())
	}
}

// A counter of 32 bits wraps in the registers of a switch. Either the counter itself shows it, or
// its array has counted other packets than the other arrays.
func TestChameleMonWrappedCounter(t *testing.T) {
	const register = "ingress.chamelemon.upstream"
	s := faulty(t, 7)
	wrapped := func(run *scenario.Run, name string, change func(v uint64) uint64) error {
		sw := run.Network().Switch(run.Network().Fabric().Find(name))
		cells, err := sw.ReadRegister(register, 0, -1)
		if err != nil {
			return err
		}
		for i := 0; i < len(cells); i += 5 { // counts, of four words of sums each
			if cells[i] > 0 { // a cell of the open bank: the other bank has been read
				return sw.WriteRegister(register, i, change(cells[i]))
			}
		}
		return fmt.Errorf("no bucket of %s is in use", name)
	}
	r, w := playWatched(t, s, func(run *scenario.Run, i int) error {
		switch i {
		case 2: // as if it had begun so high that a packet made it 0
			return wrapped(run, "edge1-1", func(v uint64) uint64 { return v - 1 })
		case 4:
			return wrapped(run, "edge2-2", func(uint64) uint64 { return 1 << 31 })
		}
		return nil
	})
	w.alerted(t, r, "edge1-1", "BAD_CELLS", "a counter wrapped", 3)
	w.alerted(t, r, "edge2-2", "BAD_CELLS", "has wrapped", 5)
	if e := losses(t, &r.Epochs[5]); e.Views["edge2-2"] != nil || e.Views["edge1-1"] == nil {
		t.Error("the switch whose counter has wrapped has results, or others have none")
	}
}

// Suddenly there are more flows than can be decoded: first among the flows that lost packets, then
// at each switch.
func TestChameleMonUndecoded(t *testing.T) {
	const lost, all = 2, 4 // epochs of the run
	s := faulty(t, all+2)
	s.Traffic[0].MaxPackets = 2
	for at, flows := range []int{lost: 16_000, 3000, all: 40_000, 3000} {
		if flows > 0 {
			s.Traffic[0].Changes = append(s.Traffic[0].Changes, change(time.Duration(at)*s.Epoch, flows))
		}
	}
	r, w := playWatched(t, s, nil)
	w.alerted(t, r, "network", "NOT_DECODED", "the difference of the IPv4 HL parts was not decoded: about 15", lost)
	for _, edge := range []string{"edge1-1", "edge1-2", "edge2-1", "edge2-2"} {
		w.alerted(t, r, edge, "NOT_DECODED", "the HH part of "+edge+" was not decoded", all)
	}
	for _, i := range []int{lost, all} { // losses and totals that are still known
		e := losses(t, &r.Epochs[i])
		if len(e.Views) != 5 {
			t.Errorf("epoch %d of the run: %d views", i+1, len(e.Views))
		}
		for name, v := range e.Views {
			if v.Distinct == nil || v.Distinct.Error() > 0.02 || v.Entropy == nil || v.Entropy.Error() > 0.02 ||
				v.Packets.Error() != 0 || v.WMRE == nil || *v.WMRE > 0.1 {
				t.Errorf("epoch %d of the run, %s: %+v", i+1, name, v)
			}
		}
		if i == lost && (e.Victims == nil || e.Victims.Error() > 0.15) {
			t.Errorf("%+v victims", e.Victims)
		}
	}
}

// A network that drains more slowly than configured: packets that are on their way are
// counted in their bank's next epoch. From then on nothing is called exact any more; the first
// epoch of each bank cannot know of it.
func TestChameleMonSlowNetwork(t *testing.T) {
	const banks = 2
	s := faulty(t, 5)
	s.Topology.Latency = 8 * time.Millisecond
	r, w := playWatched(t, s, nil)
	for i := banks; i < len(r.Epochs); i++ {
		e := losses(t, &r.Epochs[i])
		if e.Sure || !strings.Contains(w.epochs[i]["[network][OUT_OF_STEP]"], "more packets left than entered in ") {
			t.Errorf("epoch %d of the run: all victims exact: %v, alerts %v", i+1, e.Sure, w.epochs[i])
		}
		if e.Found.TruePositive < victims*2/3 ||
			e.Found.TruePositive+e.Found.FalseNegative != victims {
			t.Errorf("epoch %d of the run: %+v; %d flows lost packets, whatever is on its way", i+1, e.Found, victims)
		}
	}
	if !strings.Contains(w.String(), "alert=OUT_OF_STEP") {
		t.Errorf("it is not in the log:\n%s", w.String())
	}
}

// An edge switch whose program does not measure: its packets would look lost.
func TestChameleMonUnmeasuredEdge(t *testing.T) {
	s := faulty(t, 3)
	s.Programs["edge2-2"] = "forwarding"
	r, w := playWatched(t, s, nil)
	for i, alerts := range w.epochs {
		if got := alerts["[network][NOT_MEASURED]"]; !strings.Contains(got, "edge2-2") {
			t.Errorf("epoch %d of the run: alerts %v", i+1, alerts)
		}
		if e := losses(t, &r.Epochs[i]); e.Sure || e.Decoded || !strings.Contains(e.Problem, "edge2-2") ||
			e.Views["edge1-1"] == nil {
			t.Errorf("epoch %d of the run: %+v", i+1, e)
		}
	}
	if !strings.Contains(w.String(), "do not measure: edge2-2") {
		t.Errorf("it is not in the log:\n%s", w.String())
	}
}

// Bad configurations: memory that the pipelines do not have, and thresholds out of order. A running
// plugin keeps its configuration, a new one reports why it does not run, and a run does not begin.
func TestChameleMonRefusedConfiguration(t *testing.T) {
	cases := []struct{ config, text string }{
		{"{division: {ill-hl: 3000, ill-ll: 512}}",
			"for HL and 512 for LL; the downstream encoders of switch edge1-1 have 3072"},
		{"{start: {low: 9, high: 4}}", "9 packets are above start.high, 4"},
	}
	section := func(text string) settings.Section {
		s, err := yaml.Section("bad.yaml", text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	// reports waits until the state of a plugin has this status and error.
	reports := func(run *scenario.Run, plugin, status, text string) {
		at := "/collector/plugins/plugin[" + plugin + "]/state/"
		limit, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		for {
			state := leaves(t, run.Address(), "collector", "plugins")
			if state[at+"status"] == status && strings.Contains(state[at+"last-error"], text) {
				return
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-limit.Done():
				t.Fatalf("plugin %s is %s: %q; expected %s, %q", plugin, state[at+"status"], state[at+"last-error"],
					status, text)
			}
		}
	}
	s := faulty(t, 2*len(cases))
	r, w := playWatched(t, s, func(run *scenario.Run, i int) error {
		c, next := cases[i/2], *run.Collector().Config()
		next.Plugins.Instances = slices.Clone(next.Plugins.Instances[:1])
		if i%2 == 1 { // a second instance
			second := next.Plugins.Instances[0]
			second.Name, second.Config = "second", section(c.config)
			next.Plugins.Instances = append(next.Plugins.Instances, second)
		} else {
			next.Plugins.Instances[0].Config = section(c.config)
		}
		_, err := run.Collector().Reload(t.Context(), &next)
		if i%2 == 1 {
			reports(run, "second", "FAILED", c.text)
			return err
		}
		if err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("reloaded with %v", err)
		}
		reports(run, "chamelemon", "RUNNING", c.text)
		return nil
	})
	for i := range r.Epochs {
		if e := losses(t, &r.Epochs[i]); !e.Sure || e.Exact != victims {
			t.Errorf("epoch %d of the run: all victims exact: %v, %d are", i+1, e.Sure, e.Exact)
		}
	}
	for _, c := range cases {
		if !strings.Contains(w.String(), c.text) {
			t.Errorf("%q is not in the log:\n%s", c.text, w.String())
		}
		s.Algorithms[0] = section("{plugin: chamelemon, config: " + c.config + "}")
		if run, err := scenario.Open(t.Context(), s,
			scenario.Options{Compiler: &compiler, PluginDir: plugins, Listen: "127.0.0.1:0",
				Virtual: true}); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, %v", run, err)
		}
	}
}

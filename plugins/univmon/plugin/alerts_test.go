// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
)

// noisy sends flows whose sizes vary from epoch to epoch, as in a network without an event.
func (f fabric) noisy(tb testing.TB, r *rand.Rand) {
	for i := range 300 {
		size := 1 + 200/float64(1+i)*(0.5+r.Float64())
		k := key(tb, fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250), fmt.Sprintf("10.2.0.%d", 1+i%50), uint16(1024+i))
		f.send(k, int(math.Ceil(size)))
	}
}

// active returns the active alerts: location, subject and kind.
func active(r *sdk.Results) (names []string) {
	for _, row := range rows(r, alertList) {
		if row["state/active"] == "true" {
			names = append(names, row["location"]+" "+row["subject"]+": "+row["kind"])
		}
	}
	slices.Sort(names)
	return names
}

// TestAlerts: sizes of flows that vary raise no alert. A flood is an attack and shifts the entropy,
// an elephant is a heavy change; their alerts begin in their epoch, last for some epochs more, and
// end.
func TestAlerts(t *testing.T) {
	h := sdktest.Start(t, New(), sdktest.Options{Network: leafSpine(), Config: `{"ddos-victims": {"sources": 300},
		"alerts": {"hold": 1}}`})
	r := rand.New(rand.NewPCG(21, 22))
	number := uint64(0)
	play := func(event func(f fabric)) *sdk.Results {
		number++
		f := newFabric(t, "leaf1", "leaf2", "spine1")
		f.noisy(t, r)
		event(f)
		return h.Analyze(f.epoch(number))
	}
	nothing := func(fabric) {}
	for range 40 {
		if got := active(play(nothing)); len(got) > 0 {
			t.Fatalf("epoch %d: %v", number, got)
		}
	}
	flood := func(f fabric) {
		for i := range 900 {
			f.send(key(t, fmt.Sprintf("198.18.%d.%d", i/250, 1+i%250), "10.2.0.99", uint16(2*i)), 2)
		}
	}
	attacked := []string{"network 10.2.0.99: ATTACK", "network 5-tuple: ENTROPY_SHIFT", "network src: ENTROPY_SHIFT"}
	if got := active(play(flood)); !slices.Equal(got, attacked) {
		t.Errorf("a flood: %v", got)
	}
	if got := active(play(nothing)); !slices.Equal(got, attacked) {
		t.Errorf("the epoch after: %v", got)
	}
	if got := active(play(nothing)); len(got) > 0 {
		t.Errorf("two epochs after: %v", got)
	}
	for range 5 {
		play(nothing)
	}
	got := active(play(func(f fabric) { f.send(key(t, "10.1.0.7", "10.2.0.7", 5000), 3000) }))
	for _, want := range []string{"network 5-tuple: HEAVY_CHANGE", "network src: HEAVY_CHANGE"} {
		if !slices.Contains(got, want) {
			t.Errorf("an elephant: %v, not %s", got, want)
		}
	}
	if slices.Contains(got, "network 10.2.0.7: ATTACK") {
		t.Errorf("an elephant: %v", got)
	}
}

// TestAlertsOfIncompleteEpochs: an epoch without the packets of a switch raises no alert and is not
// usual, and of the epoch after it only an attack is an alert: packets may count late in it.
func TestAlertsOfIncompleteEpochs(t *testing.T) {
	h := sdktest.Start(t, New(), sdktest.Options{Network: leafSpine(), Config: `{"ddos-victims": {"sources": 300},
		"alerts": {"hold": 0}}`})
	r := rand.New(rand.NewPCG(23, 24))
	number := uint64(0)
	play := func(flood bool, absent ...string) []string {
		number++
		f := newFabric(t, "leaf1", "leaf2", "spine1")
		f.noisy(t, r)
		for i := 0; flood && i < 900; i++ {
			f.send(key(t, fmt.Sprintf("198.18.%d.%d", i/250, 1+i%250), "10.2.0.99", uint16(2*i)), 2)
		}
		return active(h.Analyze(f.epoch(number, absent...)))
	}
	attack := "network 10.2.0.99: ATTACK"
	for range 12 {
		play(false)
	}
	for i, step := range []struct {
		flood  bool
		absent string
		want   []string
	}{
		{absent: "leaf2"}, {flood: true, want: []string{attack}}, {absent: "spine1", flood: true},
		{flood: true, want: []string{attack}},
		{flood: true, want: []string{attack, "network 5-tuple: ENTROPY_SHIFT", "network src: ENTROPY_SHIFT"}},
	} {
		if got := play(step.flood, step.absent); !slices.Equal(got, step.want) {
			t.Errorf("step %d: %v, not %v", i, got, step.want)
		}
	}
	number++ // is missing
	if got := play(true); !slices.Equal(got, []string{attack}) {
		t.Errorf("after an epoch that never came: %v", got)
	}
}

// TestNormal: a value is compared once enough epochs are known, must differ by several times what
// is usual, and becomes the normal one if it stays.
func TestNormal(t *testing.T) {
	var n normal
	for i := range learned {
		if n.differs(10+float64(i%2), 0.1) {
			t.Fatalf("epoch %d differs while the normal value is learned", i)
		}
	}
	if n.differs(11.2, 0.1) {
		t.Error("a usual distance differs")
	}
	if !n.differs(20, 0.1) || n.differs(20, 15) {
		t.Error("20 must differ from about 10, but not by 15")
	}
	n = normal{}
	for range learned + 1 {
		n.differs(5, 1)
	}
	for x, want := range map[float64]bool{5.9: false, 4.1: false, 6: true, 4: true} {
		if same := n; same.differs(x, 1) != want {
			t.Errorf("without variation, %v differs: %v", x, !want)
		}
	}
	for range patience {
		n.differs(9, 1)
	}
	for range learned {
		if n.differs(9, 1) {
			t.Error("a value that stays still differs")
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// sited are the test's hosts; the first two are of one site.
func sited() []traffic.Host {
	out := hosts()
	out[2].Site = 1
	return out
}

// period holds the flows' traffic in one period.
type period struct{ sent, lost map[flow.Key]int }

func periods(t *testing.T, x traffic.Exact) []period {
	t.Helper()
	s, err := traffic.GenerateExact(x, sited())
	if err != nil {
		t.Fatal(err)
	}
	out := make([]period, (x.Until-x.From)/x.Period)
	for i := range out {
		out[i] = period{map[flow.Key]int{}, map[flow.Key]int{}}
	}
	var last time.Duration
	for _, p := range drain(t, s) {
		if p.At < last {
			t.Fatalf("a packet of %v after one of %v", p.At, last)
		}
		last = p.At
		k, ok := truth.Parse(p.Frame)
		if !ok {
			t.Fatal("a frame of no flow")
		}
		n := &out[(p.At-x.From)/x.Period]
		n.sent[k]++
		if p.Doomed > 2 {
			t.Fatalf("lost on link %d, which not every way has", p.Doomed)
		} else if p.Doomed > 0 {
			n.lost[k]++
		}
	}
	return out
}

func exactly() traffic.Exact {
	cdf, err := traffic.Workload("DCTCP")
	if err != nil {
		panic(err)
	}
	return traffic.Exact{
		Generated: traffic.Generated{Name: "exact", Seed: 3, Flows: 400, CDF: cdf, V6Share: 0.1, From: time.Second,
			Until: 2 * time.Second},
		Period: 100 * time.Millisecond, Scale: 0.05, Most: 50,
		Victims: traffic.Victims{Share: 0.1, Loss: 0.2},
		Changes: []traffic.Change{
			{From: 1300 * time.Millisecond, Flows: 600},
			{From: 1600 * time.Millisecond, Victims: &traffic.Victims{Share: 0.02, Loss: 0}},
			{From: 1800 * time.Millisecond, Flows: 400, Victims: &traffic.Victims{Share: 0.1, Loss: 1}},
		},
	}
}

func TestExactFlows(t *testing.T) {
	got := periods(t, exactly())
	most, packets, lost := 0, 0, 0
	for i, p := range got {
		flows, victims := 400, 40
		switch {
		case i >= 8:
		case i >= 6:
			flows, victims = 600, 12
		case i >= 3:
			flows, victims = 600, 60
		}
		if len(p.sent) != flows || len(p.lost) != victims {
			t.Errorf("period %d: %d flows, %d lose packets; want %d and %d", i, len(p.sent), len(p.lost), flows,
				victims)
		}
		for k, n := range got[0].sent {
			if p.sent[k] != n {
				t.Errorf("period %d: %v sent %d packets, %d in the first period", i, k, p.sent[k], n)
			}
		}
		for k, n := range p.lost {
			if siteOf(k.SrcAddr()) == siteOf(k.DstAddr()) {
				t.Errorf("period %d: %v loses packets within its site", i, k)
			}
			switch {
			case i >= 8 && n != p.sent[k]:
				t.Errorf("period %d: %v lost %d of %d packets, want all", i, k, n, p.sent[k])
			case i >= 6 && i < 8 && n != 1:
				t.Errorf("period %d: %v lost %d packets, want the one at least", i, k, n)
			}
		}
		for k, n := range p.sent {
			most = max(most, n)
			if i < 3 {
				packets, lost = packets+n*min(p.lost[k], 1), lost+p.lost[k]
			}
		}
	}
	if most != 50 {
		t.Errorf("the largest flow has %d packets; sizes end at 50", most)
	}
	if rate := float64(lost) / float64(packets); rate < 0.18 || rate > 0.35 {
		t.Errorf("victims lost %.3f of their packets: 0.2 and, of small flows, the one at least", rate)
	}
	again := periods(t, exactly())
	for i := range got {
		for k, n := range got[i].lost {
			if again[i].lost[k] != n {
				t.Fatalf("period %d: %v lost %d packets, and %d in a second run", i, k, n, again[i].lost[k])
			}
		}
	}
}

// siteOf is the site of the hosts above.
func siteOf(a netip.Addr) int {
	for _, h := range sited() {
		if h.V4.Contains(a) || h.V6.Contains(a) {
			return h.Site
		}
	}
	return -1
}

func TestExactFreshFlows(t *testing.T) {
	x := exactly()
	x.Fresh, x.CDF, x.Scale, x.Changes = true, nil, 7, nil
	got := periods(t, x)
	for k, n := range got[1].sent {
		if n != 7 || got[0].sent[k] > 0 {
			t.Fatalf("%v sent %d packets, and %d in the period before", k, n, got[0].sent[k])
		}
	}
	if len(got[1].sent) != 400 || len(got[1].lost) != 40 {
		t.Errorf("%d flows, %d victims", len(got[1].sent), len(got[1].lost))
	}
}

func TestExactErrorsNameTheField(t *testing.T) {
	for want, change := range map[string]func(*traffic.Exact){
		"period":         func(x *traffic.Exact) { x.Period = 0 },
		"multiples":      func(x *traffic.Exact) { x.From += time.Millisecond },
		"scale":          func(x *traffic.Exact) { x.Scale = -1 },
		"max-packets":    func(x *traffic.Exact) { x.Most = -1 },
		"victims.share":  func(x *traffic.Exact) { x.Victims.Share = 2 },
		"victims.loss":   func(x *traffic.Exact) { x.Victims.Loss = -1 },
		"changes[1]":     func(x *traffic.Exact) { x.Changes[1].From = x.Changes[0].From },
		"changes[0]":     func(x *traffic.Exact) { x.Changes[0].Flows = -5 },
		"changes[2].vic": func(x *traffic.Exact) { x.Changes[2].Victims.Share = 3 },
		"flows":          func(x *traffic.Exact) { x.Flows = 0 },
	} {
		x := exactly()
		change(&x)
		if _, err := traffic.GenerateExact(x, sited()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package banks_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
)

// A switch that two collectors hand over to each other in each epoch is measured in all epochs, and
// each packet counts once. If it is handed over too late, was restarted or has an unread bank,
// epochs are lost, but no epoch has a wrong count.
func TestHandover(t *testing.T) {
	type life = func(banks.Incarnation, error)
	newFakeOf := map[string]func() (sw banks.Switch, send func(number uint64, n int), is life){
		"banks": func() (banks.Switch, func(uint64, int), life) {
			f := newFake("s1")
			send := func(_ uint64, n int) { f.count(n) }
			return f, send, func(i banks.Incarnation, down error) { f.set(func(f *fake) { f.life, f.down = i, down }) }
		},
		"window": func() (banks.Switch, func(uint64, int), life) {
			f := newSlotted("s1")
			return f, f.packet, func(i banks.Incarnation, down error) { f.set(func(f *slotted) { f.life, f.down = i, down }) }
		},
	}
	for kind, newSwitch := range newFakeOf {
		t.Run(kind, func(t *testing.T) {
			sw, send, is := newSwitch()
			p := newCollectors(t)
			p.both[0].add(sw)
			p.both[0].join(t)
			p.open()
			is(banks.Incarnation{ID: 1}, nil) // sessions after the first do not push the pipeline
			owner := 0
			measured := uint64(0)
			for number := uint64(1); number <= 12; number++ {
				send(number, int(number))
				got := p.close(owner)
				switch want := "COMPLETE s1="; {
				case strings.HasPrefix(got, want):
					if got != want+string(rune('0'+number)) && number < 10 {
						t.Errorf("epoch %d: %s", number, got)
					}
					measured++
				case number <= 7: // the handovers up to this epoch are in time
					t.Errorf("epoch %d: %s", number, got)
				}
				from, to := p.both[owner], p.both[1-owner]
				h, err := from.g.Handover("s1")
				if err != nil {
					t.Fatal(err)
				}
				from.e.Remove("s1")
				from.g.Remove("s1")
				switch number {
				case 7: // the next owner has no session before the epoch ends
					p.close(owner)
					number++
				case 9:
					is(banks.Incarnation{ID: 2, Clean: true}, nil)
				case 4: // the session begins when the epoch ends
					is(banks.Incarnation{ID: 1}, errors.New("no session"))
				}
				to.e.Add(to.g.Adopt(sw, over(t, h)))
				if number == 4 {
					is(banks.Incarnation{ID: 1}, nil)
				} else {
					to.join(t)
				}
				if number == 9 {
					is(banks.Incarnation{ID: 2}, nil)
				}
				owner = 1 - owner
			}
			if measured < 8 {
				t.Errorf("%d epochs were measured", measured)
			}
		})
	}
}

// A bank that was not read completely is not clean at the next owner: the next epoch in that bank
// is lost, and the epoch after it is exact.
func TestHandoverOfUnreadBank(t *testing.T) {
	f := newFake("s1")
	p := newCollectors(t)
	p.both[0].add(f)
	p.both[0].join(t)
	p.open()
	f.set(func(f *fake) { f.life.Clean = false })
	f.count(1)
	f.set(func(f *fake) { f.readErr, f.errs = errors.New("a range was lost"), 2 })
	p.close(0)
	p.both[0].join(t)
	h, err := p.both[0].g.Handover("s1")
	if err != nil || h == nil {
		t.Fatal(h, err)
	}
	p.both[0].e.Remove("s1")
	p.both[1].e.Add(p.both[1].g.Adopt(f, over(t, h)))
	for i, want := range []string{"COMPLETE s1=2", "LOST s1=unread", "COMPLETE s1=4"} {
		f.count(2 + i)
		if got := p.close(1); got != want {
			t.Errorf("epoch %d: %s, want %s", 2+i, got, want)
		}
	}
	if h, err := p.both[0].g.Handover("s2"); h != nil || err != nil {
		t.Errorf("a switch that is not there is handed over as %v, %v", h, err)
	}
}

// over encodes and decodes a handover, as on its way to another collector.
func over(t *testing.T, h *banks.Handover) *banks.Handover {
	t.Helper()
	data, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var out *banks.Handover
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// collectors are two collectors with the same epochs.
type collectors struct {
	t     *testing.T
	clock *epoch.Virtual
	both  [2]network
	end   time.Time
}

func newCollectors(t *testing.T) *collectors {
	p := &collectors{t: t, clock: epoch.NewVirtual(t0, 0), end: t0}
	for i := range p.both {
		cfg := epoch.Config{Interval: time.Second, Guard: time.Millisecond, Deadline: 800 * time.Millisecond}
		p.both[i] = network{epoch.New(cfg, epoch.Dependencies{Clock: p.clock}), banks.New(banks.Config{
			Interval: cfg.Interval, Guard: cfg.Guard, Common: true}, p.clock), nil}
		t.Cleanup(p.both[i].stop)
	}
	return p
}

func (p *collectors) wait(_ context.Context, d time.Duration) error { p.clock.Advance(d); return nil }

func (p *collectors) open() {
	for _, n := range p.both {
		if err := n.e.Open(context.Background(), t0, p.wait); err != nil {
			p.t.Fatal(err)
		}
	}
}

// close ends the epoch at both collectors, and returns the epoch of the collector with index of,
// without its number.
func (p *collectors) close(of int) string {
	p.t.Helper()
	p.end = p.end.Add(time.Second)
	p.clock.AdvanceTo(p.end)
	out := ""
	for i, n := range p.both {
		ep, err := n.e.Close(context.Background(), p.end, p.wait)
		if err != nil {
			p.t.Fatal(err)
		}
		number, _ := n.e.Current()
		n.g.Opened(number)
		if i == of {
			_, out, _ = strings.Cut(short(ep), " ")
		}
	}
	return out
}

// FuzzHandover: a switch whose handover is unusable or wrong is measured exactly again within a
// few epochs.
func FuzzHandover(f *testing.F) {
	f.Add([]byte(`{"epoch":1,"from":1,"bank":1,"unread":[false,false]}`), false)
	f.Add([]byte(`{"epoch":1,"from":999,"bank":0,"unread":[true,false],"out":[1]}`), false)
	f.Add([]byte(`{"epoch":1,"from":1,"unread":[false,false,false,false],"window":{"first":1,"size":4,`+
		`"epochs":[4,1,2,3],"missed":{"2":3},"unsure":{"2":"x"},"delivered":{"1":true},"late":{"1":1}}}`), true)
	f.Add([]byte(`{"epoch":1,"from":999,"unread":[false,false,false,false],"window":{"first":1,"size":4,`+
		`"epochs":[4,1,2,3]}}`), true)
	f.Add([]byte(`{"epoch":1,"from":1,"unread":[false,false,false,false],"window":{"first":99,"epochs":[0,0,0,0]}}`), true)
	f.Add([]byte(`{"epoch":1,"from":1,"unread":[false,false,false,false],"window":{"first":1,"size":999,`+
		`"epochs":[4,1,2,3]}}`), true)
	f.Add([]byte(`{"epoch":1,"from":1,"unread":[false,false,false,false],"window":{"first":1,"size":4,`+
		`"epochs":[1,2]}}`), true)
	f.Fuzz(func(t *testing.T, data []byte, windowed bool) {
		var h banks.Handover
		if json.Unmarshal(data, &h) != nil {
			return
		}
		p := newCollectors(t)
		var sw banks.Switch
		var send func(number uint64, n int)
		if windowed {
			s := newSlotted("s1")
			s.life.Clean, s.first, s.size = false, 1, 4
			sw, send = s, s.packet
		} else {
			s := newFake("s1")
			s.life.Clean = false
			sw, send = s, func(_ uint64, n int) { s.count(n) }
		}
		p.open()
		to := p.both[1]
		to.g.Opened(1)
		to.e.Add(to.g.Adopt(sw, &h))
		to.join(t)
		got := ""
		for number := uint64(1); number <= 16; number++ {
			send(number, int(number))
			got = p.close(1)
		}
		if got != "COMPLETE s1=16" {
			t.Errorf("epoch 16 is %q", got)
		}
	})
}

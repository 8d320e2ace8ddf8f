// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/plugins/sdk"
	univmonplugin "github.com/netsketch/netsketch/plugins/univmon/plugin"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// univmonSwitch is a switch with sketches by source and by 5-tuple, as the P4 programs univmon and
// univmon-300k have them.
type univmonSwitch struct {
	names    []string // names of the registers
	sketches []*universal.Sketch
}

func newUnivmonSwitch(program string) (*univmonSwitch, []sdk.Object, error) {
	columns, slots := 2048, 64
	if program == "univmon-300k" {
		columns, slots = 512, 32
	}
	s := &univmonSwitch{names: []string{"univmon_src", "univmon_5t"}}
	var objects []sdk.Object
	for i, l := range []universal.Layout{
		{Key: flow.Src, Levels: 16, Rows: 3, Columns: columns, Ways: 4, Slots: slots},
		{Key: flow.FiveTuple, Levels: 16, Rows: 3, Columns: columns, Ways: 4, Slots: 2 * slots},
	} {
		sketch, err := universal.New(l)
		if err != nil {
			return nil, nil, err
		}
		s.sketches = append(s.sketches, sketch)
		register := func(part string, cells int, more map[string]string) {
			more["part"], more["key"], more["levels"], more["banks"] = part, l.Key.String(), strconv.Itoa(l.Levels), "2"
			objects = append(objects, sdk.Object{Name: s.names[i] + "." + part, Cells: cells, Width: 32, Banks: 2,
				Annotations: sdk.Annotations{"netsketch_univmon": more}})
		}
		register("counters", l.CounterCells()+l.Levels, map[string]string{"rows": strconv.Itoa(l.Rows),
			"columns": strconv.Itoa(l.Columns), "packets": strconv.Itoa(l.CounterCells())})
		register("heavy", l.HeavyCells(), map[string]string{"ways": strconv.Itoa(l.Ways), "slots": strconv.Itoa(l.Slots),
			"words": strconv.Itoa(l.Words())})
	}
	return s, objects, nil
}

// epoch counts the flows' packets, which arrive interleaved, and returns the registers.
func (s *univmonSwitch) epoch(ctx context.Context, number uint64, sizes []int, keys []flow.Key,
	random *rand.Rand) (*sdk.Epoch, error) {
	for _, sketch := range s.sketches {
		sketch.Reset()
	}
	order := interleaved(sizes, random)
	for n, i := range order {
		if n%1_000_000 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		for _, sketch := range s.sketches {
			sketch.Update(&keys[i])
		}
	}
	e := accuracyEpoch(number)
	e.ExpectedHosts, e.Expected = nil, []string{"s1"}
	for i, sketch := range s.sketches {
		e.Put("s1", sdk.CellsOf(s.names[i]+".counters", slices.Concat(sketch.Counters(), sketch.Packets())))
		e.Put("s1", sdk.CellsOf(s.names[i]+".heavy", slices.Clone(sketch.Heavy())))
	}
	return e, nil
}

// univmonRoot is the path of UnivMon's results.
const univmonRoot = "/netsketch-univmon:univmon/"

// univmonAccuracy sends flows, each from a source of its own, through a switch in two epochs. In
// the second epoch every tenth flow is new, and all new flows have the same destination: a victim.
func univmonAccuracy(ctx context.Context, program string, sizes []int, seed uint64) ([]published, error) {
	s, objects, err := newUnivmonSwitch(program)
	if err != nil {
		return nil, err
	}
	attackers := (len(sizes) + 9) / 10
	p := univmonplugin.New()
	_, err = p.Configure(ctx, sdk.Config{JSON: fmt.Appendf(nil, `{"network": {"enabled": false},
		"heavy-hitters": {"share": %g, "limit": 1000000}, "heavy-changes": {"share": %g, "packets": 1, "limit": 1000000},
		"ddos-victims": {"sources": %d}, "functions": [{"name": "√x", "power": 0.5}, {"name": "x^1.5", "power": 1.5},
		{"name": "mice", "from": 1, "to": 10}]}`, heavyShare, heavyShare, max(attackers/4, 10))},
		sdk.Network{Version: 1, Devices: []sdk.Device{{Name: "s1", Objects: objects}}})
	if err != nil {
		return nil, err
	}
	results, keys, changes, err := playUnivmon(ctx, s, p, sizes, seed)
	if err != nil {
		return nil, err
	}
	change := 0.0
	for i := 0; i < len(sizes); i += 10 {
		change += 2 * float64(sizes[i])
	}
	packets, squares, roots, powers, mice := 0, 0.0, 0.0, 0.0, 0.0
	for _, n := range sizes {
		x := float64(n)
		packets, squares, roots, powers = packets+n, squares+x*x, roots+math.Sqrt(x), powers+math.Pow(x, 1.5)
		if n <= 10 {
			mice++
		}
	}
	entropy, _ := truthOf(sizes)
	of := func(list, key, value string) (found []map[string]string) {
		for _, row := range chamelemon.Rows(results, univmonRoot+list) {
			if row[key] == value {
				found = append(found, row)
			}
		}
		return found
	}
	row := rowOf(results, univmonRoot+"node-summaries/node-summary", "dimension", "src")
	row["problem"] = row["status"] + " " + row["problem"]
	out := []published{
		judged("distinct flows", row, "distinct-flows", float64(len(sizes)), ""),
		judged("entropy", row, "entropy", entropy, ""),
		judged("second moment", row, "second-moment", squares, ""),
		judged("total change", row, "total-change", change, ""),
	}
	for _, f := range []struct {
		name string
		want float64
	}{{"√x", roots}, {"x^1.5", powers}, {"mice", mice}} {
		value := map[string]string{}
		for _, r := range of("functions/function", "name", f.name) {
			if r["dimension"] == "src" {
				value = r
			}
		}
		out = append(out, judged("sum of "+f.name, value, "value", f.want, ""))
	}
	above := func(list, task, leaf string, share float64, flows map[string]float64) {
		if _, ok := row[leaf]; !ok {
			out = append(out, published{task: task, error: math.NaN(), text: "absent", says: row["problem"]})
			return
		}
		found, want := make(map[string]float64), make(map[string]float64)
		for _, r := range of(list, "dimension", "src") {
			found[r["flow"]] = 1
		}
		for k, x := range flows {
			if x >= share {
				want[k] = x
			}
		}
		out = append(out, foundAccuracy(task, found, want, ""))
	}
	hitters := make(map[string]float64)
	for i, n := range sizes {
		if float64(n) >= heavyShare*float64(packets) {
			hitters[keys[i].Project(flow.Src).String()] = float64(n)
		}
	}
	above("heavy-hitters/heavy-hitter", "heavy hitters", "heavy-hitters", 0, hitters)
	above("heavy-changes/heavy-change", "heavy changes", "changes", heavyShare*change, changes)
	actual := make(map[string]float64, len(keys))
	for i, n := range sizes {
		actual[keys[i].Project(flow.Src).String()] += float64(n)
	}
	out = append(out, univmonSizes(of("heavy-hitters/heavy-hitter", "dimension", "src"), actual))
	return append(out, univmonVictim(results, attackers)), nil
}

// playUnivmon plays two epochs of flows of these sizes. It returns the results of the second one,
// its flows, and the changes of sizes by source.
func playUnivmon(ctx context.Context, s *univmonSwitch, p *univmonplugin.Plugin, sizes []int, seed uint64) (
	results *sdk.Results, keys []flow.Key, changes map[string]float64, err error) {
	random := rand.New(rand.NewPCG(seed, 1))
	keys = make([]flow.Key, len(sizes))
	victim := uint32(192<<24 | 2<<8 | 1)
	fresh := func(dst uint32) flow.Key {
		k := flow.Key{Mask: flow.FiveTuple, Proto: 6, SrcPort: uint16(random.Uint32()), DstPort: 443}
		binary.BigEndian.PutUint32(k.Src[:], random.Uint32())
		binary.BigEndian.PutUint32(k.Dst[:], dst)
		return k
	}
	for i := range keys {
		keys[i] = fresh(10<<24 | uint32(random.IntN(4096)))
	}
	changes = make(map[string]float64)
	for number := range uint64(2) {
		for i := 0; number == 1 && i < len(keys); i += 10 {
			x := float64(sizes[i])
			changes[keys[i].Project(flow.Src).String()] = x
			keys[i] = fresh(victim)
			changes[keys[i].Project(flow.Src).String()] = x
		}
		e, err := s.epoch(ctx, number+1, sizes, keys, random)
		if err != nil {
			return nil, nil, nil, err
		}
		if results, err = p.Analyze(ctx, e); err != nil {
			return nil, nil, nil, err
		}
	}
	return results, keys, changes, nil
}

// univmonSizes compares the sizes of heavy hitters with their standard errors.
func univmonSizes(hitters []map[string]string, actual map[string]float64) published {
	far, beyond := 0, 0
	for _, r := range hitters {
		switch z := math.Abs(number(r, "packets")-actual[r["flow"]]) / max(number(r, "packets-error"), 1); {
		case z > mostErrors:
			far, beyond = far+1, beyond+1
		case z > 2:
			far++
		}
	}
	rows := len(hitters)
	return published{task: "sizes of heavy hitters", error: float64(far) / float64(max(rows, 1)),
		text:    fmt.Sprintf("%d of %d beyond two errors, %d beyond %d", far, rows, beyond, mostErrors),
		outside: far > 5+rows/10 || beyond > 1+rows/1000}
}

// univmonVictim compares the published number of the victim's sources with attackers.
func univmonVictim(results *sdk.Results, attackers int) published {
	flows := rowOf(results, univmonRoot+"node-summaries/node-summary", "dimension", "5-tuple")
	attack := map[string]string{"problem": flows["status"] + " " + flows["problem"]}
	others := 0
	for _, r := range chamelemon.Rows(results, univmonRoot+"ddos-victims/ddos-victim") {
		if r["destination-address"] == "192.0.2.1" {
			attack = r
		} else {
			others++
		}
	}
	return judged("sources of a victim", attack, "distinct-sources", float64(attackers),
		fmt.Sprintf("%d other victims", others))
}

// SPDX-License-Identifier: Apache-2.0

// Package accuracy measures what plugins publish against ground truth, by traffic and number of
// flows.
package accuracy

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/netsketch/netsketch/hostagent/inband"
	lgwire "github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	siwire "github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/traffic"
	chamelemonplugin "github.com/netsketch/netsketch/plugins/chamelemon/plugin"
	lightguardianplugin "github.com/netsketch/netsketch/plugins/lightguardian/plugin"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	sketchintplugin "github.com/netsketch/netsketch/plugins/sketchint/plugin"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/sumax"
	"github.com/netsketch/netsketch/sketch/universal"
)

// heavyShare is the least share of all packets that a heavy hitter has. A heavy change is at least
// this share of the total change for UnivMon, and of all packets for ChameleMon.
const heavyShare = 0.0005

// mostPackets bounds the packets of an epoch of Table: what a port of 100 Gbit/s sends in a second,
// with 1,250 bytes a packet. If flows have more packets in total, the same share of each flow's
// packets is left out.
const mostPackets = 10_000_000

// numbers are the numbers of flows that Table measures, and the number of runs for each.
var numbers = [][2]int{{1000, 3}, {10_000, 3}, {100_000, 3}, {1_000_000, 1}, {4_000_000, 1}}

// kinds is the traffic of Table: one-packet floods, 1 to 10 packets, Zipf by its
// exponent, and published distributions.
var kinds = []string{
	"flood", "uniform", "Zipf 0.6", "Zipf 1.0", "Zipf 1.4", "DCTCP", "CACHE", "VL2", "HADOOP",
}

// sizesOf returns the packets of n flows.
func sizesOf(name string, n int, random *rand.Rand) ([]int, error) {
	sizes := make([]int, n)
	var skew float64
	zipf, _ := fmt.Sscanf(name, "Zipf %g", &skew)
	var points []traffic.SizePoint
	if zipf == 0 && name != "flood" && name != "uniform" {
		var err error
		if points, err = traffic.Workload(name); err != nil {
			return nil, err
		}
	}
	packets := 0
	for i := range sizes {
		switch {
		case name == "flood":
			sizes[i] = 1
		case name == "uniform":
			sizes[i] = 1 + random.IntN(10)
		case zipf == 1:
			sizes[i] = max(1, int(min(3*math.Pow(float64(n)/float64(10*(i+1)), skew), 200_000)))
		default:
			sizes[i] = int(traffic.Size(points, random.Float64()))
		}
		packets += sizes[i]
	}
	if part := mostPackets / float64(packets); part < 1 {
		for i, x := range sizes {
			sizes[i] = max(1, int(float64(x)*part))
		}
	}
	return sizes, nil
}

// published is a task's result: its error, and the accuracy that the plugin states.
type published struct {
	task  string
	error float64 // in standard errors, if the plugin states one; NaN: no result
	text  string
	says  string
	// outside is set if the value is further from ground truth than the plugin says.
	outside bool
}

func (p published) String() string { return strings.TrimRight(p.text+"; "+p.says, "; ") }

// accuracyOf has a row for each algorithm whose results Table measures.
var accuracyOf = []struct {
	name    string
	measure func(ctx context.Context, name string, sizes []int, seed uint64) ([]published, error)
}{
	{"univmon", univmonAccuracy}, {"univmon-300k", univmonAccuracy}, {"chamelemon", chamelemonAccuracy},
	{"lightguardian", lightguardianAccuracy}, {"sketchint", sketchintAccuracy}, {"omnimon", omnimonAccuracy},
}

// Selection selects parts of Table: algorithms, traffic and numbers of flows. An empty
// list selects all.
type Selection struct {
	Algorithms, Traffic []string
	Flows               []int
}

func selected[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }

// Table writes the accuracy of what plugins publish, by algorithm, traffic, task and number of
// flows, as CSV: the worst of the runs.
func Table(ctx context.Context, w io.Writer, part Selection) error {
	fmt.Fprintf(w, "# %s\n", evidence.Run())
	out := csv.NewWriter(w)
	header := []string{"algorithm", "traffic", "task"}
	for _, flows := range numbers {
		header = append(header, strconv.Itoa(flows[0]))
	}
	_ = out.Write(header) // Error reports its errors
	for _, of := range accuracyOf {
		if !selected(part.Algorithms, of.name) {
			continue
		}
		for _, name := range kinds {
			if !selected(part.Traffic, name) {
				continue
			}
			var tasks []string
			cells := make(map[string][]string)
			for column, flows := range numbers {
				if !selected(part.Flows, flows[0]) {
					continue
				}
				began := time.Now()
				results, err := worstOf(ctx, flows[1], func(run uint64) ([]published, error) {
					sizes, err := sizesOf(name, flows[0], rand.New(rand.NewPCG(run, uint64(flows[0]))))
					if err != nil {
						return nil, err
					}
					return of.measure(ctx, of.name, sizes, run+1)
				})
				if err != nil {
					return fmt.Errorf("%s, %s, %d flows: %w", of.name, name, flows[0], err)
				}
				slog.Info("measured", "algorithm", of.name, "traffic", name, "flows", flows[0],
					"time", time.Since(began).Round(time.Second/10))
				for _, p := range results {
					if cells[p.task] == nil {
						tasks, cells[p.task] = append(tasks, p.task), make([]string, len(numbers))
					}
					cells[p.task][column] = p.String()
				}
			}
			for _, task := range tasks {
				_ = out.Write(append([]string{of.name, name, task}, cells[task]...))
			}
			out.Flush()
		}
	}
	return out.Error()
}

// worstOf returns the worst result of each task.
func worstOf(ctx context.Context, runs int, measure func(run uint64) ([]published, error)) ([]published, error) {
	all := make([][]published, runs)
	err := suite.Each(ctx, runs, func(i int) (err error) {
		all[i], err = measure(uint64(i))
		return err
	})
	if err != nil {
		return nil, err
	}
	worst := all[0]
	for i := range worst {
		absent := 0
		for _, results := range all {
			p := results[i]
			if math.IsNaN(p.error) {
				absent++
			}
			if !(p.error <= worst[i].error) && !math.IsNaN(p.error) {
				worst[i] = p
			}
		}
		if absent > 0 && absent < runs {
			worst[i].says += fmt.Sprintf(" (absent in %d of %d runs)", absent, runs)
		}
	}
	return worst, nil
}

// truthOf returns the entropy of flow sizes, and the number of flows in each range of sizes. A
// range is named by the power of two at which it begins.
func truthOf(sizes []int) (entropy float64, ranges map[int]float64) {
	packets, sum := 0.0, 0.0
	ranges = make(map[int]float64)
	for _, x := range sizes {
		packets, sum = packets+float64(x), sum+universal.XLogX(float64(x))
		ranges[1<<int(math.Log2(float64(x)))]++
	}
	return math.Log2(packets) - sum/packets, ranges
}

// number returns a leaf of a row. It panics without the leaf, as after a change of its name.
func number(row map[string]string, leaf string) float64 {
	v, err := strconv.ParseFloat(row[leaf], 64)
	if err != nil {
		panic(fmt.Sprintf("row %v: leaf %s: %v", row, leaf, err))
	}
	return v
}

// mostErrors is the number of standard errors from which a deviation contradicts the standard error
// that a plugin states.
const mostErrors = 4

// saysExact means that a plugin states that its values are exact.
const saysExact = "exact"

// judged is the accuracy of a leaf: its relative error, or absent.
func judged(task string, row map[string]string, leaf string, want float64, says string) published {
	if _, ok := row[leaf]; !ok {
		return published{task: task, error: math.NaN(), text: "absent", says: row["problem"]}
	}
	v := number(row, leaf)
	off := suite.Relative(v, want)
	p := published{task: task, error: off, text: fmt.Sprintf("%.2g %%", 100*off), says: says}
	if _, ok := row[leaf+"-error"]; ok {
		s := number(row, leaf+"-error")
		p.error, p.says = math.Abs(v-want)/max(s, 1e-9), fmt.Sprintf("± %.2g %%", 100*s/v)
		p.outside = p.error > mostErrors
	} else if says == saysExact {
		p.outside = p.error > 1e-6
	}
	return p
}

// foundAccuracy is the accuracy of a list of flows.
func foundAccuracy[V any](task string, found map[string]float64, want map[string]V, says string) published {
	score := suite.F1(found, want)
	return published{task: task, error: 1 - score, text: fmt.Sprintf("F1 %.3f of %d", score, len(want)), says: says}
}

// rangesAccuracy is the weighted mean relative error of numbers of flows by ranges of sizes.
func rangesAccuracy(rows []map[string]string, key, of string, truth map[int]float64) published {
	difference, sum, some := 0.0, 0.0, false
	left := make(map[int]float64, len(truth))
	for first, n := range truth {
		left[first], sum = n, sum+n
	}
	for _, row := range rows {
		if row[key] != of {
			continue
		}
		some = true
		first, n := int(number(row, "lower")), number(row, "flows")
		difference, sum = difference+math.Abs(n-left[first]), sum+n
		delete(left, first)
	}
	if !some {
		return published{task: "distribution", error: math.NaN(), text: "absent"}
	}
	for _, n := range left {
		difference += n
	}
	return published{task: "distribution", error: 2 * difference / sum, text: fmt.Sprintf("WMRE %.3f", 2*difference/sum)}
}

// rowOf returns the row of a list whose key has a value.
func rowOf(r *sdk.Results, list, key, value string) map[string]string {
	for _, row := range chamelemon.Rows(r, list) {
		if row[key] == value {
			return row
		}
	}
	return map[string]string{}
}

// settledEpochs are the epochs that ChameleMon's attention gets to follow the traffic.
const settledEpochs = 8

// chamelemonAccuracy plays the paper's testbed, where one percent of the flows lose a tenth of
// their packets.
func chamelemonAccuracy(ctx context.Context, _ string, sizes []int, seed uint64) ([]published, error) {
	return chamelemonLosses(ctx, sizes, seed, 0.01, 0.1)
}

// chamelemonLosses plays the paper's testbed, where a share of the flows lose a share of their
// packets. A tenth of the flows is new in the last epoch.
func chamelemonLosses(ctx context.Context, sizes []int, seed uint64, victims, loss float64) ([]published, error) {
	packets := 0
	for _, x := range sizes {
		packets += x
	}
	heavy := max(int64(float64(packets)*heavyShare), 2)
	p := chamelemonplugin.New()
	d, err := chamelemon.Start(ctx, chamelemon.Config{Seed: seed}, p, fmt.Sprintf(`{"heavy-hitters":
		{"packets": %d, "share": 0, "limit": 1000000}, "heavy-changes": {"packets": %d, "limit": 1000000},
		"victims": {"limit": 1000000}}`, heavy, heavy))
	if err != nil {
		return nil, err
	}
	one := []traffic.SizePoint{{Packets: 1, Share: 1}}
	flows := d.Testbed.Flows(chamelemon.Traffic{Sizes: one, Flows: len(sizes), Victims: victims, Loss: loss})
	set := func() {
		for i, x := range sizes {
			flows[i].Packets = int64(x)
			if flows[i].Lost > 0 {
				flows[i].Lost = max(1, int64(float64(x)*loss))
			}
		}
	}
	set()
	var played *chamelemon.Played
	changed := make(map[string]int64) // changes by flow
	for epoch := range settledEpochs {
		if epoch == settledEpochs-1 {
			fresh := d.Testbed.Flows(chamelemon.Traffic{Sizes: one, Flows: len(sizes), Victims: victims, Loss: loss})
			for i := 0; i < len(flows); i += 10 {
				changed[flows[i].Key.String()] = flows[i].Packets
				flows[i] = fresh[i]
				changed[flows[i].Key.String()] = int64(sizes[i])
			}
			set()
		}
		if played, err = d.Play(ctx, flows); err != nil {
			return nil, err
		}
	}
	row := rowOf(played.Results, chamelemon.SummaryList, "node", chamelemon.Network)
	row["problem"] = row["status"] + " " + row["problem"]
	exact := map[bool]string{true: saysExact, false: ""}[row["quality"] == string(sdk.Exact)]
	entropy, _ := truthOf(sizes)
	out := []published{
		judged("distinct flows", row, "distinct-flows", float64(len(sizes)), exact),
		judged("entropy", row, "entropy", entropy, exact),
	}
	list := func(task, list, from string, actual map[string]int64) {
		least, err := strconv.ParseInt(row[from], 10, 64)
		if err != nil {
			out = append(out, published{task: task, error: math.NaN(), text: "absent", says: row["problem"]})
			return
		}
		found, want, missing := make(map[string]float64), make(map[string]bool), 0
		listed := make(map[string]bool)
		for _, r := range chamelemon.Rows(played.Results, list) {
			if r["node"] != chamelemon.Network {
				continue
			}
			listed[r["flow"]] = true
			// The list of changes also has flows that may have changed by more than the threshold.
			if list == chamelemon.HitterList || math.Abs(number(r, "delta")) > float64(heavy) {
				found[r["flow"]] = 1
			}
		}
		for key, n := range actual {
			want[key] = n > heavy || list == chamelemon.HitterList && n == heavy
			if !want[key] {
				delete(want, key)
			}
			if !listed[key] && n >= least {
				missing++
			}
		}
		p := foundAccuracy(task, found, want, fmt.Sprintf("%d missing from %d packets on, %s", missing, least,
			row["problem"]))
		p.outside = missing > 0
		out = append(out, p)
	}
	actual := make(map[string]int64)
	for i := range flows {
		actual[flows[i].Key.String()] = flows[i].Packets
	}
	list("heavy hitters", chamelemon.HitterList, "heavy-hitters-from", actual)
	list("heavy changes", chamelemon.Root+"heavy-changes/heavy-change", "changes-from", changed)
	lost := make(map[string]int64)
	for i := range flows {
		if flows[i].Lost > 0 {
			lost[flows[i].Key.String()] = flows[i].Lost
		}
	}
	return append(out, chamelemonQualities(played.Results, row, actual, changed, lost)...), nil
}

// chamelemonQualities compares rows with their qualities and bounds, and the victims with the lost
// packets. actual holds the packets of each flow in the last epoch, changed the packets of flows
// that began or ended in that epoch. row is the summary of the network.
func chamelemonQualities(results *sdk.Results, row map[string]string,
	actual, changed, lost map[string]int64) []published {
	wrong, listed := 0, 0
	claimed, rows, contrary := 0, 0, 0
	check := func(row map[string]string, leaf, quality string, truth int64) {
		if rows++; breaks(row, leaf, quality, float64(truth)) {
			contrary++
		}
	}
	sent := make(map[string]int64) // by flow, in this epoch and the one before
	for k, n := range changed {
		if _, ok := actual[k]; !ok {
			sent[k] = -n // the flow ended
		} else {
			sent[k] = n
		}
	}
	for _, r := range chamelemon.Rows(results, chamelemon.HitterList) {
		check(r, "packets", "quality", actual[r["flow"]])
	}
	for _, r := range chamelemon.Rows(results, chamelemon.Root+"heavy-changes/heavy-change") {
		check(r, "delta", "quality", sent[r["flow"]])
	}
	for _, r := range chamelemon.Rows(results, chamelemon.VictimList) {
		check(r, "lost-packets", "quality", lost[r["flow"]])
		check(r, "packets", "packets-quality", actual[r["flow"]])
		listed++
		n := number(r, "lost-packets")
		if r["quality"] == string(sdk.Exact) {
			if claimed++; float64(lost[r["flow"]]) != n {
				wrong++
			}
		}
	}
	says := fmt.Sprintf("%s %s, %d exact", row["status"], row["victims-quality"], claimed)
	check(row, "victims", "victims-quality", int64(len(lost)))
	check(row, "packets", "packets-quality", packetsOf(actual))
	check(row, "lost-packets", "lost-packets-quality", packetsOf(lost))
	return []published{
		boundsOf("qualities", rows, contrary),
		{"losses", float64(wrong) + 1 - float64(listed)/float64(max(len(lost), 1)),
			fmt.Sprintf("%d of %d victims, %d exact ones wrong", listed, len(lost), wrong), says, wrong > 0},
	}
}

// packetsOf returns the packets of all flows.
func packetsOf(flows map[string]int64) (n int64) {
	for _, packets := range flows {
		n += packets
	}
	return n
}

// accuracyAddress is the address of a host of sdktest's network.
func accuracyAddress(h int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(h + 1)}) }

// accuracyKey is the i-th flow to the first host.
func accuracyKey(i int, random *rand.Rand) flow.Key {
	var a [4]byte
	x := random.Uint32()
	a[0], a[1], a[2], a[3] = byte(x>>24)&0x7f|1, byte(x>>16), byte(x>>8), byte(x)
	k, err := flow.New(netip.AddrFrom4(a), accuracyAddress(0), 17, uint16(i), uint16(i>>16)+1)
	if err != nil {
		panic(err) // both addresses are of IPv4
	}
	return k
}

// accuracyEpoch is an epoch of sdktest's network in which nothing was reported.
func accuracyEpoch(number uint64) *sdk.Epoch {
	return &sdk.Epoch{Number: number, Status: sdk.StatusComplete, Start: time.Unix(int64(number), 0),
		End: time.Unix(int64(number+1), 0), BankShift: 7, ExpectedHosts: []string{"h1", "h2", "h3", "h4"}}
}

// lightguardianAccuracy lets flows pass a switch with the default sketch, of which all columns
// arrive.
func lightguardianAccuracy(ctx context.Context, _ string, sizes []int, seed uint64) ([]published, error) {
	const columns, banks = 4096, 256
	p := lightguardianplugin.New()
	settings, err := p.Configure(ctx, sdk.Config{JSON: []byte(`{}`), EpochLength: time.Second},
		sdktest.LeafSpine("lightguardian", accuracyAddress))
	if err != nil {
		return nil, err
	}
	hosts, err := lgwire.ParseSettings(settings.Plan.Hosts[0].Data)
	if err != nil {
		return nil, err
	}
	s, err := sumax.New[family.P4](sumax.Config{Rows: 3, Width: columns, Ranges: []uint32{50, 100, 200}, Intervals: true})
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(seed, 1))
	total := uint64(0)
	keys := make([][]byte, len(sizes))
	for i := range sizes {
		k := accuracyKey(i, random)
		keys[i] = k.AppendBinary(nil)
	}
	for _, i := range interleaved(sizes, random) {
		s.Record(keys[i], sumax.Packet{Delay: 10, At: 1})
		total++
	}
	var over, beyond float64
	bound := s.Bound(total)
	for i, n := range sizes {
		got, _ := s.Query(keys[i])
		over += math.Abs(float64(got)-float64(n)) / float64(n)
		if float64(got)-float64(n) > bound.Over {
			beyond++
		}
	}
	var results *sdk.Results
	for number := uint64(7); number < 9; number++ {
		e := accuracyEpoch(number)
		for h := range 4 {
			r := &lgwire.Report{Epoch: number}
			for c := h; number == 8 && c < columns; c += 4 {
				cells, err := s.Column(nil, c)
				if err != nil {
					return nil, err
				}
				r.Sketchlets = lgwire.Append(r.Sketchlets, hosts.Devices[0].ID, uint16(c), uint8(e.BankOf(number-1, banks)),
					cells)
			}
			sdktest.SetReport(e, fmt.Sprintf("h%d", h+1), lgwire.Role, r.Append(nil))
		}
		if results, err = p.Analyze(ctx, e); err != nil {
			return nil, err
		}
	}
	const root = "/netsketch-lightguardian:lightguardian/"
	row := rowOf(results, root+"node-summaries/node-summary", "node", "leaf1")
	entropy, truth := truthOf(sizes)
	return []published{
		judged("distinct flows", row, "distinct-flows", float64(len(sizes)), ""),
		judged("entropy", row, "entropy", entropy, ""),
		rangesAccuracy(chamelemon.Rows(results, root+"ranges/range"), "node", "leaf1", truth),
		{"flow sizes", over / float64(len(sizes)), fmt.Sprintf("ARE %.2g", over/float64(len(sizes))),
			fmt.Sprintf("too high by more than e/w of all: %.4f of the flows, theorem 6.1 %.4f",
				beyond/float64(len(sizes)), bound.Failure), beyond/float64(len(sizes)) > bound.Failure},
	}, nil
}

// interleaved returns the flow of each packet; the packets of different flows take turns.
func interleaved(sizes []int, random *rand.Rand) (order []int32) {
	live, sent := random.Perm(len(sizes)), make([]int, len(sizes))
	for len(live) > 0 {
		next := live[:0]
		for _, i := range live {
			for range min(sizes[i]-sent[i], 1+sizes[i]/50) {
				order = append(order, int32(i))
				sent[i]++
			}
			if sent[i] < sizes[i] {
				next = append(next, i)
			}
		}
		live = next
	}
	return order
}

// sketchintAccuracy lets flows arrive at a host in two intervals. In the second interval, every
// tenth flow is replaced by a new one.
func sketchintAccuracy(ctx context.Context, _ string, sizes []int, seed uint64) ([]published, error) {
	p := sketchintplugin.New()
	settings, err := p.Configure(ctx,
		sdk.Config{JSON: []byte(`{"limits": {"switch-flows": 100000}}`), EpochLength: time.Second},
		sdktest.LeafSpine("sketchint", accuracyAddress))
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(settings.Plan.Hosts, func(s sdk.HostSetting) bool { return s.Host == "h1" })
	host, err := siwire.ParseSettings(settings.Plan.Hosts[at].Data)
	if err != nil {
		return nil, err
	}
	const change = 250
	random := rand.New(rand.NewPCG(seed, 1))
	keys := make([]flow.Key, len(sizes))
	for i := range keys {
		keys[i] = accuracyKey(i, random)
	}
	changed := make(map[string]bool)
	var results *sdk.Results
	for interval := range uint64(2) {
		if interval == 1 {
			for i := 0; i < len(keys); i += 10 {
				if sizes[i] > change {
					changed[keys[i].String()] = true
				}
				keys[i] = accuracyKey(i, random)
				if sizes[i] > change {
					changed[keys[i].String()] = true
				}
			}
		}
		e := accuracyEpoch(5*interval + 4)
		e.BankShift = 0
		for h := range 4 {
			var arrived []flow.Key // all flows arrive at h1
			if h == 0 {
				arrived = keys
			}
			data, err := sketchintReport(host, 5*interval, e.Number, arrived, sizes)
			if err != nil {
				return nil, err
			}
			sdktest.SetReport(e, fmt.Sprintf("h%d", h+1), siwire.Role, data)
		}
		if results, err = p.Analyze(ctx, e); err != nil {
			return nil, err
		}
	}
	const root = "/netsketch-sketchint:sketchint/"
	row := rowOf(results, root+"node-summaries/node-summary", "node", "h1")
	status := rowOf(results, root+"hosts/host", "node", "h1")
	row["problem"] = status["problem"]
	entropy, truth := truthOf(sizes)
	out := []published{
		judged("distinct flows", row, "distinct-flows", float64(len(sizes)), ""),
		judged("entropy", row, "entropy", entropy, ""),
		rangesAccuracy(chamelemon.Rows(results, root+"ranges/range"), "node", "h1", truth),
	}
	heavy := make(map[string]bool)
	for i, n := range sizes {
		if n >= 500 {
			heavy[keys[i].String()] = true
		}
	}
	list := func(task, list string, want map[string]bool) {
		found := make(map[string]float64)
		for _, r := range chamelemon.Rows(results, root+list) {
			if r["node"] == "h1" {
				found[r["flow"]] = 1
			}
		}
		p := foundAccuracy(task, found, want, status["status"]+" "+status["problem"])
		for k := range want {
			if found[k] == 0 && status["status"] == "COMPLETE" {
				p.outside = true
			}
		}
		out = append(out, p)
	}
	list("heavy hitters", "heavy-hitters/heavy-hitter", heavy)
	list("heavy changes", "heavy-changes/heavy-change", changed)
	return out, nil
}

// sketchintReport returns the report of a host at which flows of these sizes arrived from epoch
// first to epoch last.
func sketchintReport(host *siwire.Settings, first, last uint64, keys []flow.Key, sizes []int) ([]byte, error) {
	r := &siwire.Report{First: first, Last: last}
	var err error
	if r.Flows, r.Latencies, err = host.NewTowers(); err != nil {
		return nil, err
	}
	for i, k := range keys {
		r.Flows.Add(k.AppendBinary(nil), uint32(sizes[i]))
		r.Counters[siwire.Packets] += uint64(sizes[i])
	}
	r.Problems[inband.None] = r.Counters[siwire.Packets]
	for _, k := range keys {
		switch n := r.Flows.Query(k.AppendBinary(nil)); {
		case n < host.Heavy:
		case len(r.Heavy) < host.HeavyFlows:
			r.Heavy = append(r.Heavy, siwire.Heavy{Key: k})
		default:
			r.Counters[siwire.HeavyFull]++
		}
	}
	return r.Append(nil)
}

// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/netsketch/netsketch/hostagent/omnimon/query"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/yang/table"
)

// running is a query that runs in every epoch.
type running struct {
	name, text string
	id         uint64
	client     bool   // whether a client requested the query
	problem    string // reason for which the query does not run
	plan       *query.Plan
	fields     []query.Field // fields of results
	recorded   bool          // whether what hosts record of flows determines the results
	kind       int           // kind of the units that the query uses
	units      []int         // units that the query uses
}

// newRunning prepares a query. A query that cannot run has a problem.
func newRunning(name, text string, client bool) *running {
	r := &running{name: name, text: text, id: query.ID(text), client: client}
	if client {
		r.name = query.ClientName(text)
	}
	q, err := query.Parse(r.name, text)
	if err != nil {
		r.problem = err.Error()
		return r
	}
	r.plan = q.Place()
	r.recorded = r.plan.Recorded()
	r.fields = q.Sequences[len(q.Sequences)-1].Fields
	switch queue, err := r.plan.Queue(); {
	case err != nil:
		r.problem = err.Error()
	case queue:
		r.kind = inEgress
	}
	return r
}

// reads reports whether a sequence of the query reads packets or losses.
func (r *running) reads(source string) bool {
	return r.plan != nil && slices.ContainsFunc(r.plan.Steps, func(s query.Step) bool { return s.Source == source })
}

// maxRequests bounds the queries of clients.
const maxRequests = 64

// request follows the requests of clients, and returns whether they have changed.
func (p *Plugin) request(watched []sdk.RowKey) (changed bool) {
	var next []*running
	for _, row := range watched {
		text := row.Keys["text"]
		if row.List != requestList || slices.ContainsFunc(next, func(r *running) bool { return r.text == text }) {
			continue
		}
		if i := slices.IndexFunc(p.requests, func(r *running) bool { return r.text == text }); i >= 0 {
			next = append(next, p.requests[i])
			continue
		}
		r := newRunning("", text, true)
		if len(next) >= maxRequests {
			r.problem = fmt.Sprintf("%d queries of clients run: end another query first", maxRequests)
		}
		next, changed = append(next, r), true
	}
	changed = changed || len(next) != len(p.requests)
	p.requests = next
	return changed
}

// queries returns the queries of the configuration and of clients.
func (p *Plugin) queries() []*running { return slices.Concat(p.setup.queries, p.requests) }

// hostQueries returns what hosts run.
func hostQueries(queries []*running) (out []wire.Query) {
	for _, q := range queries {
		if q.problem == "" && q.kind == inIngress && !q.recorded &&
			!slices.ContainsFunc(out, func(o wire.Query) bool { return o.ID == q.id }) &&
			q.reads("packets") {
			out = append(out, wire.Query{ID: q.id, Text: q.text})
		}
	}
	return out
}

// answer is the result of a query in one epoch.
type answer struct {
	*running
	epoch     uint64
	tuples    []query.Tuple
	undefined int
	inexact   string // reason for which the result is not exact
	unseen    uint64 // packets that the query did not see and may have matched
	waiting   bool   // whether the hosts do not run the query yet
	copied    string // why a host copies packets to its agent, which costs more
}

// answers computes the results of all queries.
func (r *run) answers(queries []*running) (out []*answer) {
	rows := map[uint64][]queryRow{}
	if len(queries) > 0 {
		rows = r.queryRows()
	}
	var volumes []query.Volume
	if slices.ContainsFunc(queries, func(q *running) bool { return q.recorded && q.problem == "" }) {
		volumes = r.volumes()
	}
	for _, q := range queries {
		a := &answer{running: q, epoch: r.epoch.Number}
		if q.problem == "" {
			r.answer(a, rows[q.id], volumes)
		}
		out = append(out, a)
	}
	return out
}

// queryRow is the result of one sequence of a query at a host.
type queryRow struct {
	host int
	wire.QueryRow
}

// queryRows reads the hosts' results of queries, by the ids of the queries.
func (r *run) queryRows() map[uint64][]queryRow {
	rows := map[uint64][]queryRow{}
	for n, data := range r.input.Reports {
		if r.hosts[n].name == "" || data == nil {
			continue
		}
		rep, err := wire.Open(data)
		if err != nil {
			continue
		}
		rep.SkipEgress()
		var in wire.IngressRow
		for {
			if _, ok := rep.NextHost(); !ok {
				break
			}
			for rep.NextIngress(&in) {
			}
		}
		var row wire.QueryRow
		for rep.NextQuery(&row) {
			rows[row.ID] = append(rows[row.ID], queryRow{n, row})
		}
		if err := rep.Err(); err != nil {
			r.warn("host %s: %v", r.hosts[n].name, err)
		}
	}
	return rows
}

// volumes reads what the hosts recorded of the flows that they sent, with a header or without.
func (r *run) volumes() (out []query.Volume) {
	for n, data := range r.input.Reports {
		if r.hosts[n].name == "" || data == nil {
			continue
		}
		rep, err := wire.Open(data)
		if err != nil {
			continue
		}
		var row wire.EgressRow
		var values wire.Values
		for rep.NextEgress(&row) {
			if values.Decode(row.Values) != nil {
				break // the analysis warns of the report
			}
			out = append(out, query.Volume{Key: row.Key, Packets: values[wire.Packets] + int64(row.Untagged.Packets),
				Bytes: values[wire.Bytes] + int64(row.Untagged.Bytes)})
		}
	}
	return out
}

// doubt keeps the first reason why the result is not exact.
func (a *answer) doubt(format string, args ...any) {
	if a.inexact == "" {
		a.inexact = fmt.Sprintf(format, args...)
	}
}

// answer computes the result of a query from the hosts' results of its sequences, or from what
// hosts recorded of flows.
func (r *run) answer(a *answer, rows []queryRow, volumes []query.Volume) {
	q := a.running
	expected := 0 // number of sequences that each host runs
	for _, s := range q.plan.Steps {
		if s.Source == "packets" && q.kind == inIngress && !q.recorded {
			expected++
		}
	}
	tuples, returned := map[string][]query.Tuple{}, map[int]int{}
	for _, row := range rows {
		if r.add(a, tuples, &row) {
			returned[row.host]++
		}
	}
	for n := range r.hosts {
		switch h := &r.hosts[n]; {
		case h.name == "" || expected == 0 && q.kind != inEgress && !q.recorded:
		case !h.delivered:
			a.doubt("host %s is missing", h.name)
		case returned[n] < expected:
			a.doubt("host %s did not run the query in the whole epoch", h.name)
		}
	}
	switch {
	case q.recorded:
		tuples = q.plan.OfVolumes(volumes)
	case q.kind == inEgress:
		tuples, a.waiting = r.queueTuples(q, a.doubt)
		if reason := r.pendingReason(true); reason != "" {
			a.doubt("%s", reason)
		}
	default:
		a.waiting = expected > 0 && len(returned) == 0
	}
	if a.waiting {
		a.doubt("it does not run yet")
		return
	}
	if a.unseen = r.unseen(q); a.unseen > 0 {
		a.doubt("%d packets that it may have matched were not seen: %s", a.unseen, r.unseenText(q))
	}
	var undefined int
	a.tuples, undefined = q.plan.Finish(tuples, r.lostTuples(q, a.doubt))
	a.undefined += undefined
	if len(r.inexact) > 0 {
		a.doubt("%s", r.inexact[0])
	}
}

// add adds a host's tuples to the tuples of their sequence. It returns false if the host did not
// return the sequence.
func (r *run) add(a *answer, tuples map[string][]query.Tuple, row *queryRow) bool {
	host, steps := r.hosts[row.host].name, a.plan.Steps
	switch {
	case row.Problem != "":
		a.doubt("host %s: %s", host, row.Problem)
		return false
	case row.Step >= len(steps) || steps[row.Step].Source != "packets":
		a.doubt("host %s returned a sequence that does not exist", host)
		return false
	}
	s := &steps[row.Step]
	more, err := s.DecodeTuples(row.Tuples)
	if err != nil {
		a.doubt("host %s: %v", host, err)
		return false
	}
	if row.Dropped > 0 {
		a.doubt("host %s: %d tuples or packets of %s are above its limits", host, row.Dropped, s.Name)
	}
	if row.Copied != "" && a.copied == "" {
		a.copied = fmt.Sprintf("host %s runs %s in its agent: %s", host, s.Name, row.Copied)
	}
	a.undefined += int(min(row.Undefined, 1<<31))
	tuples[s.Name] = append(tuples[s.Name], more...)
	return true
}

// unseen counts the packets that a query over packets did not see although it may have matched
// them. Hosts run queries on all packets of the flows that they track, with a header or without.
// What hosts received without a header may come from elsewhere.
func (r *run) unseen(q *running) (n uint64) {
	if !q.reads("packets") {
		return 0
	}
	n = r.traffic.untracked
	if r.beyond(q) {
		n += r.traffic.foreign + r.traffic.headerless
	}
	return n
}

// beyond reports whether a query may match packets from or to an address of no host with an agent.
func (r *run) beyond(q *running) bool {
	return !q.plan.Between(func(a netip.Addr) bool {
		_, ok := r.network.addresses[a]
		return ok
	})
}

func (r *run) unseenText(q *running) string {
	var parts []string
	if n := r.traffic.untracked; n > 0 {
		parts = append(parts, fmt.Sprintf("%d of flows that found the flow table full", n))
	}
	if n := r.traffic.foreign; n > 0 && r.beyond(q) {
		parts = append(parts, fmt.Sprintf("%d from or to an address of no host with an agent", n))
	}
	if n := r.traffic.headerless; n > 0 && r.beyond(q) {
		from := "from addresses of no host with an agent"
		if r.traffic.untagged+r.traffic.untracked > 0 {
			from = "maybe " + from
		}
		parts = append(parts, fmt.Sprintf("%d that arrived without a header, %s", n, from))
	}
	return strings.Join(parts, ", ")
}

// lostTuples returns the stream of losses, if the query uses it.
func (r *run) lostTuples(q *running, inexact func(format string, args ...any)) (out []query.Tuple) {
	if r.result == nil || !q.reads("losses") {
		return nil
	}
	if reason := r.reason(); reason != "" {
		inexact("losses of some flows are unknown: %s", reason)
	}
	n := func(v int64) query.Value { return query.Value{Type: query.Integer, Int: v} }
	for i := range r.result.Unplaced {
		if f := &r.result.Unplaced[i]; f.Lost != (wire.Values{}) {
			inexact("losses of %v, whose path is not determined, are unknown", f.Key)
		}
	}
	for i := range r.result.Lossy {
		f := &r.result.Lossy[i]
		for at := range f.Losses {
			lost := f.Losses[at].Packets
			if !lost.Exact() {
				inexact("losses of %v are not determined", f.Key)
			}
			if lost.Low == 0 {
				continue
			}
			name, _ := r.network.element(f.Path, at)
			out = append(out, query.Tuple{{Type: query.Address, Address: f.Key.SrcAddr()},
				{Type: query.Address, Address: f.Key.DstAddr()}, n(int64(f.Key.Proto)), n(int64(f.Key.SrcPort)),
				n(int64(f.Key.DstPort)), {Type: query.Text, Text: name}, n(lost.Low)})
		}
	}
	return out
}

func (r *run) queryTable(answers []*answer) (*table.Table, error) {
	b := table.NewBuilder(queryList)
	names, epoch := b.TextKey("name"), b.Uint("state/last-epoch")
	status, problem, quality := b.Text("state/status"), b.Text("state/problem"), b.Text("state/quality")
	source, plan := b.Text("state/source"), b.Text("state/plan")
	results, undefined := b.Uint("state/result-count"), b.Uint("state/undefined")
	units, free, unseen := b.Uint("state/units"), b.Uint("state/units-free"), b.Uint("state/unseen-packets")
	copied := b.Text("state/copied")
	for i, a := range answers {
		if slices.IndexFunc(answers, func(o *answer) bool { return o.name == a.name }) < i {
			continue
		}
		names.Append(a.name)
		epoch.Append(a.epoch)
		status.Append(a.status())
		problem.AppendSome(alert.Clip(cmp.Or(a.problem, a.inexact)))
		if a.problem == "" && !a.waiting {
			quality.Append(string(sdk.ExactIf(a.inexact == "")))
		}
		if a.client {
			source.Append("CLIENT")
		} else {
			source.Append("CONFIGURATION")
		}
		if a.plan != nil {
			plan.Append(a.plan.String())
		}
		copied.AppendSome(alert.Clip(a.copied))
		units.Append(uint64(len(a.units)))
		free.Append(uint64(r.freeUnits(a.kind)))
		known(unseen, int64(a.unseen), a.problem == "" && !a.waiting)
		known(results, int64(len(a.tuples)), a.problem == "" && !a.waiting)
		known(undefined, int64(a.undefined), a.problem == "" && !a.waiting)
	}
	return b.Table()
}

func (q *running) status() string {
	if q.problem != "" {
		return "FAILED"
	}
	return "RUNNING"
}

func (r *run) resultTable(answers []*answer) (*table.Table, error) {
	b := table.NewBuilder(resultList)
	names, keys := b.TextKey("query/name"), b.TextKey("key")
	value, text := b.Int("state/value"), b.Text("state/tuple")
	seen := map[string]bool{}
	for _, a := range answers {
		for _, t := range a.tuples[:min(len(a.tuples), r.config.Limits.Results)] {
			key, last := resultKey(t)
			for n, base := 2, key; seen[a.name+" "+key]; n++ {
				key = base + " #" + strconv.Itoa(n)
			}
			seen[a.name+" "+key] = true
			names.Append(a.name)
			keys.Append(key)
			if last >= 0 {
				value.Append(t[last].Int)
			}
			var words []string
			for i, v := range t {
				words = append(words, a.fields[i].Name+"="+printable(v.String()))
			}
			text.Append(strings.Join(words, " "))
		}
	}
	return b.Table()
}

// resultKey returns the fields of a tuple without the last integer, and its position, or -1.
func resultKey(t query.Tuple) (key string, last int) {
	last = -1
	for i, v := range t {
		if v.Type == query.Integer {
			last = i
		}
	}
	var words []string
	for i, v := range t {
		if i != last {
			words = append(words, printable(v.String()))
		}
	}
	return cmp.Or(strings.Join(words, " "), "all"), last
}

// printable returns a text that a YANG string can contain, at most 1000 bytes of it.
func printable(s string) string {
	return alert.Clip(strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, s))
}

func (r *run) requestTable(requests []*running) (*table.Table, error) {
	b := table.NewBuilder(requestList)
	texts, name := b.TextKey("text"), b.Text("state/name")
	status, problem := b.Text("state/status"), b.Text("state/problem")
	for _, q := range requests {
		texts.Append(q.text)
		name.Append(q.name)
		status.Append(q.status())
		problem.AppendSome(alert.Clip(q.problem))
	}
	return b.Table()
}

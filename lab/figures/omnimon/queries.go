// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/hostagent/epoch"
	hostrole "github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/query"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/internal/test/omnimon/workload"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/p4/compiled"
)

// none marks a number that the paper does not state.
const none = -1

// application is a query of table 1 or of Exp#10 with the paper's numbers.
type application struct {
	file string
	name string
	// lines of code, in Sonata, Marple and OmniMon (table 1).
	sonata, marple, omnimon float64
	// KB/s from a switch to the controller (table 3), and F1 of Sonata-AD in percent (table 4).
	traffic, sonataF1 float64
}

var applications = []application{
	{"new-tcp-connections", "New TCP Conns.", 6, 8, 6, none, 100},
	{"ssh-brute-force", "SSH Brute Force", 7, 12, 7, 20, 100},
	{"superspreader", "Superspreader", 6, 11, 6, 0, 56},
	{"port-scan", "Port Scan", 6, 11, 6, 0, 32},
	{"ddos", "DDoS", 9, 14, 9, 0, 68},
	{"syn-flood", "TCP SYN Flood", 17, 17, 17, 60, 57},
	{"tcp-incomplete-flows", "TCP Incomplete Flows", 12, 16, 12, none, none},
	{"slowloris", "Slowloris Attack", 13, 18, 13, 80, 47},
	{"zorro", "Zorro Attack", 13, none, 13, 20, none},
	{"packet-counts", "Packet Counts", 2, 4, 2, none, none},
	{"flowlet-size-histogram", "Flowlet size histogram", 8, 12, 8, none, none},
	{"cardinality", "Cardinality", 3, 10, 3, none, none},
	{"lossy-connections", "Lossy connections", none, 8, 9, none, none},
	{"tcp-incast", "TCP incast", none, 9, 4, none, none},
	{"completed-flows", "Completed flows", none, none, none, 20, 81},
	{"dns-tunneling", "DNS tunneling", none, none, none, 40, 100},
	{"reflection-dns", "Reflection DNS", none, none, none, 40, 100},
}

// inExp10 are the applications of figure 16.
var inExp10 = []string{"new-tcp-connections", "ssh-brute-force", "superspreader", "port-scan", "ddos", "syn-flood",
	"completed-flows", "slowloris", "dns-tunneling", "zorro", "reflection-dns"}

func queryText(file string) (string, error) {
	text, err := os.ReadFile(filepath.Join(queryDirectory, file+".query"))
	if err != nil {
		return "", fmt.Errorf("%w: run the command in the repository", err)
	}
	return string(text), nil
}

// queryLines counts the lines of each query without comments and empty lines.
func queryLines() (rows []suite.Row, err error) {
	for _, a := range applications {
		if a.omnimon == none {
			continue
		}
		text, err := queryText(a.file)
		if err != nil {
			return nil, err
		}
		lines := 0
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				lines++
			}
		}
		rows = append(rows, suite.Row{Structure: a.file, Task: "lines of code", Metric: "lines", Value: float64(lines)})
	}
	return rows, nil
}

func linesTable() suite.Suite {
	return suite.New(suite.Suite{
		Name:    "omnimon-table-1",
		Measure: func(context.Context, *trace.Trace, suite.Options) ([]suite.Row, error) { return queryLines() },
		Table: func(rows []suite.Row) string {
			var b strings.Builder
			b.WriteString("| query | Sonata | Marple | OmniMon | here |\n|---|---|---|---|---|\n")
			for _, a := range applications {
				if a.omnimon > 0 {
					fmt.Fprintf(&b, "| %s | %s | %s | %s | %v |\n", a.name, stated(a.sonata), stated(a.marple), stated(a.omnimon),
						suite.Values(rows).Get(a.file, 0, "lines of code", "lines"))
				}
			}
			return b.String()
		},
	})
}

// Sizes of the measurement of figure 16.
const (
	queryHosts     = 8
	queryFlows     = 100_000
	queryPackets   = 300_000
	queryAddresses = 4_000
	queryEpoch     = 10
)

// runQueries runs the applications of Exp#10 on the data path of hosts over one epoch of traffic.
func runQueries(packets []workload.Packet) (rows []suite.Row, err error) {
	names := map[string]bool{}
	for i := range packets {
		names[packets[i].Src], names[packets[i].Dst] = true, true
	}
	addresses, hostOf := make([][]netip.Addr, queryHosts), map[string]int{}
	for name := range names {
		a, err := netip.ParseAddr(name)
		if err != nil {
			return nil, err
		}
		b := a.As4()
		h := (int(b[2])*200 + int(b[3])) % queryHosts
		hostOf[name] = h
		addresses[h] = append(addresses[h], a)
	}
	settings := wire.Settings{EtherType: header.DefaultEtherType, Slots: 8192, SlotsPerFlow: 2, Shares: 2 * queryHosts,
		Flows: 1 << 17, IngressSlots: 1 << 17, IdleEpochs: 8, Hosts: addresses}
	plans := map[uint64]*query.Plan{}
	for i, file := range inExp10 {
		text, err := queryText(file)
		if err != nil {
			return nil, err
		}
		q, err := query.Parse(file, text)
		if err != nil {
			return nil, err
		}
		plans[uint64(i)] = q.Place()
		settings.Queries = append(settings.Queries, wire.Query{ID: uint64(i), Text: text})
	}
	clock := epoch.NewClock(100*time.Millisecond, queryEpoch)
	roles := make([]*hostrole.Role, queryHosts)
	for h := range roles {
		settings.Host = h
		data, err := settings.Append(nil)
		if err != nil {
			return nil, err
		}
		roles[h] = hostrole.New(clock, func() time.Duration { return 0 })
		if err := roles[h].Apply(data); err != nil {
			return nil, err
		}
	}
	for i := range packets {
		roles[hostOf[packets[i].Src]].Out([]*packet.Frame{packet.NewFrame(frame(&packets[i]))})
	}
	clock.Advance(queryEpoch + 1)
	parts := make([]map[string][]query.Tuple, len(inExp10))
	bytes, flows, report := make([]int, len(inExp10)), 0, 0
	for h, r := range roles {
		data := r.Seal(queryEpoch).Append(nil)
		report += len(data)
		n, err := read(data, plans, parts, bytes)
		if err != nil {
			return nil, fmt.Errorf("host %d: %w", h, err)
		}
		flows += n
	}
	return queryRows(packets, plans, parts, bytes, flows, report)
}

// read reads the results of queries from a report, and returns the count of its flows.
func read(data []byte, plans map[uint64]*query.Plan, parts []map[string][]query.Tuple, bytes []int) (flows int,
	err error) {
	rep, err := wire.Open(data)
	if err != nil {
		return 0, err
	}
	for c, n := range rep.Counters {
		if n > 0 {
			return 0, fmt.Errorf("%d packets %v", n, wire.Counter(c))
		}
	}
	rep.SkipEgress()
	if _, more := rep.NextHost(); more {
		return 0, fmt.Errorf("packets arrived")
	}
	var row wire.QueryRow
	for rep.NextQuery(&row) {
		if row.Problem != "" || row.Dropped > 0 || row.Undefined > 0 {
			return 0, fmt.Errorf("query %s: %q, %d tuples dropped, %d packets undefined", inExp10[row.ID], row.Problem,
				row.Dropped, row.Undefined)
		}
		s := &plans[row.ID].Steps[row.Step]
		tuples, err := s.DecodeTuples(row.Tuples)
		if err != nil {
			return 0, err
		}
		if parts[row.ID] == nil {
			parts[row.ID] = map[string][]query.Tuple{}
		}
		parts[row.ID][s.Name] = append(parts[row.ID][s.Name], tuples...)
		bytes[row.ID] += len(row.Tuples)
	}
	return rep.EgressRows, rep.Err()
}

// queryRows compares the results of queries with the workload.
func queryRows(packets []workload.Packet, plans map[uint64]*query.Plan, parts []map[string][]query.Tuple, bytes []int,
	flows, report int) (rows []suite.Row, err error) {
	program, err := compiled.Load("omnimon")
	if err != nil {
		return nil, err
	}
	form, err := formOf(program.JSON)
	if err != nil {
		return nil, err
	}
	row := func(name, metric string, v float64) {
		rows = append(rows, suite.Row{Structure: name, Task: "queries", Metric: metric, Value: v})
	}
	for id, file := range inExp10 {
		plan := plans[uint64(id)]
		tuples, undefined := plan.Finish(parts[id], nil)
		if undefined > 0 {
			return nil, fmt.Errorf("%s: %d tuples undefined", file, undefined)
		}
		var got []string
		for _, t := range tuples {
			got = append(got, t.String())
		}
		want := workload.Results[file](packets)
		row(file, "results", float64(len(want)))
		row(file, "F1", f1(got, want))
		row(file, "bytes from a host", float64(bytes[id])/queryHosts)
		units := 0
		for i := range plan.Steps {
			if u, ok := plan.Steps[i].Units(); ok {
				units += len(u)
			}
		}
		row(file, "units", float64(units))
		row(file, "bytes from a switch", float64(units*form.slots*4))
	}
	all := 0
	for _, n := range bytes {
		all += n
	}
	row("all", "flows", float64(flows))
	row("all", "bytes from a host", float64(all)/queryHosts)
	row("all", "bytes of flows from a host", float64(report-all)/queryHosts)
	row("all", "bytes from a switch", float64(form.bank))
	return rows, nil
}

// f1 compares two sets of rows.
func f1(got, want []string) float64 {
	right := 0
	for _, r := range got {
		if slices.Contains(want, r) {
			right++
		}
	}
	if right == 0 {
		return 0
	}
	precision, recall := float64(right)/float64(len(got)), float64(right)/float64(len(want))
	return 2 * precision * recall / (precision + recall)
}

// frame builds an Ethernet frame. The checksum does not cover flags and payload, because hosts do
// not check it.
func frame(p *workload.Packet) []byte {
	b := traffic.BuildFrame(traffic.FrameSpec{Src: netip.MustParseAddr(p.Src), Dst: netip.MustParseAddr(p.Dst),
		Proto: uint8(p.Proto), SrcPort: uint16(p.SrcPort), DstPort: uint16(p.DstPort), Length: int(14 + p.Length)})
	l4 := b[34:]
	if p.Proto == packet.ProtocolTCP {
		l4[13] = byte(p.Flags)
		copy(l4[20:], p.Payload)
	} else if p.DNSType > 0 {
		copy(l4[8:], []byte{0, 1, byte(p.Response) << 7, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'x', 0, 0, byte(p.DNSType), 0, 1})
	}
	return b
}

func queryFigure() suite.Suite {
	return suite.New(suite.Suite{
		Name: "omnimon-16",
		Measure: func(context.Context, *trace.Trace, suite.Options) ([]suite.Row, error) {
			return runQueries(workload.Traffic(queryPackets, queryFlows, queryAddresses))
		},
		Table: queryTable,
	})
}

func queryTable(rows []suite.Row) string {
	v := suite.Values(rows)
	get := func(file, metric string) float64 { return v.Get(file, 0, "queries", metric) }
	var b strings.Builder
	b.WriteString("| query | results | F1 | Sonata-AD's F1 (%) | units | KB/s from a switch | " +
		"paper's KB/s | bytes from a host |\n|---|---|---|---|---|---|---|---|\n")
	for _, file := range inExp10 {
		a := applications[slices.IndexFunc(applications, func(a application) bool { return a.file == file })]
		fmt.Fprintf(&b, "| %s | %v | %v | %s | %v | %.4g | %s | %.0f |\n", a.name, get(file, "results"), get(file, "F1"),
			stated(a.sonataF1), get(file, "units"), get(file, "bytes from a switch")/100, stated(a.traffic),
			get(file, "bytes from a host"))
	}
	fmt.Fprintf(&b, "\nA report has %.0f bytes of flows and %.0f bytes of all queries; a bank of a switch has %.0f "+
		"bytes.\n",
		get("all", "bytes of flows from a host"), get("all", "bytes from a host"), get("all", "bytes from a switch"))
	return b.String()
}

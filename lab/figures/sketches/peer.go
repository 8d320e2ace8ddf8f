// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/flow"
)

// job is passes of one kind over the trace.
type job struct {
	structure, variant string
	memory             int
	task               string
	rows, threads      int // rows and threads that peers are asked for; if rows is 0, no peer is asked
	fresh              func() error
	// pass does the work and returns the processor time of its slowest thread; nil if only peers
	// have the structure.
	pass func() time.Duration
}

// theirs is the peers' name of the job's task. Peers have no batches.
func (j *job) theirs() string {
	if j.task == query {
		return query
	}
	return insertion
}

const (
	insertion = "insertion"
	batch     = "insertion in batches"
	query     = "query"
)

// alone returns a pass that runs f on the calling thread.
func alone(f func()) func() time.Duration {
	return func() time.Duration {
		start := suite.ThreadTime()
		f()
		return suite.ThreadTime() - start
	}
}

// bench measures jobs on one trace, and peers' passes between ours.
type bench struct {
	t     *trace.Trace
	runs  int
	peers []suite.Peer
	keys  string // file that peers read
	about map[string]string
}

// newBench writes the keys for peers into a directory, which stop removes.
func newBench(t *trace.Trace, o suite.Options) (b *bench, stop func() error, err error) {
	b = &bench{t: t, runs: max(o.Runs, 3), peers: o.Peers, about: map[string]string{}}
	if len(b.peers) == 0 {
		return b, func() error { return nil }, nil
	}
	if t.KeyBytes() != flow.FiveTupleV4 {
		return nil, nil, fmt.Errorf("trace %s: keys of %d bytes; peers read keys of %d: use IPv4 traffic, or no --peer",
			t.Name, t.KeyBytes(), flow.FiveTupleV4)
	}
	dir, err := os.MkdirTemp("", "figures-peer-")
	if err != nil {
		return nil, nil, err
	}
	b.keys = filepath.Join(dir, "keys.dat")
	var records []byte
	for i := range t.Len() {
		records = binary.LittleEndian.AppendUint64(append(records, t.Key(i)...), uint64(t.At(i)))
	}
	if err := os.WriteFile(b.keys, records, 0o600); err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return b, func() error { return os.RemoveAll(dir) }, nil
}

// answer is the output of a peer: its name, the seconds per packet or key by task, and the mean
// relative error of all flow sizes.
type answer struct {
	about   string
	seconds map[string]float64
	are     float64
	hasARE  bool
}

// parseAnswer reads the lines of a peer that was to insert a number of packets and to query a
// number of keys. A peer that lacks the structure prints no task.
func parseAnswer(text string, packets, keys int) (a answer, err error) {
	a.seconds = map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, rest, _ := strings.Cut(line, " ")
		f := strings.Fields(rest)
		switch {
		case line == "":
		case name == "about" && rest != "" && !strings.Contains(rest, "|"):
			a.about = rest
		case (name == insertion || name == query) && len(f) == 2:
			n, err1 := strconv.Atoi(f[0])
			ns, err2 := strconv.ParseFloat(f[1], 64)
			want := map[string]int{insertion: packets, query: keys}[name]
			if err := errors.Join(err1, err2); err != nil {
				return a, fmt.Errorf("line %q: %w", line, err)
			}
			if n != want || !(ns >= 1 && ns < 1e15) {
				return a, fmt.Errorf("line %q: expected %d, all of the file, and 1 to 1e15 nanoseconds", line, want)
			}
			a.seconds[name] = ns / 1e9 / float64(n)
		case name == "ARE" && len(f) == 1:
			if a.are, err = strconv.ParseFloat(f[0], 64); err != nil || !(a.are >= 0 && a.are < 1e9) {
				return a, fmt.Errorf("line %q: expected a mean relative error from 0 to 1e9", line)
			}
			a.hasARE = true
		default:
			return a, fmt.Errorf("line %q: expected about TEXT (without |), insertion PACKETS NANOSECONDS, "+
				"query KEYS NANOSECONDS or ARE VALUE", line)
		}
	}
	if a.about == "" {
		return a, errors.New("no line begins with about: the page names compiler, flags and keys from it")
	}
	return a, nil
}

// ask runs a peer for one pass over a fresh structure, on the processors of the calling thread.
func (b *bench) ask(ctx context.Context, p suite.Peer, j *job) (answer, error) {
	args := append(slices.Clone(p.Command[1:]), b.keys, j.structure, strconv.Itoa(j.rows), strconv.Itoa(j.memory),
		strconv.Itoa(j.threads))
	cmd := exec.CommandContext(ctx, p.Command[0], args...) //nolint:gosec // the user's own command
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return answer{}, fmt.Errorf("peer %s: %s: %w: %s", p.Name, strings.Join(cmd.Args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	a, err := parseAnswer(string(out), b.t.Len(), len(b.t.Flows()))
	if err != nil {
		return a, fmt.Errorf("peer %s: %s: %w", p.Name, strings.Join(cmd.Args, " "), err)
	}
	b.about[p.Name] = a.about
	return a, nil
}

// measure returns the rows of a job: the speed here and, if there are peers, their speeds and the
// ratios of pairs of passes. Every pass has a fresh structure and follows a warm-up pass.
func (b *bench) measure(ctx context.Context, j job) (rows []suite.Row, err error) {
	if j.threads == 1 {
		unpin, failed := pin()
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, unpin()) }()
	}
	n := float64(b.t.Len())
	if j.task == query {
		n = float64(len(b.t.Flows()))
	}
	var peers []suite.Peer
	if j.rows > 0 {
		for _, p := range b.peers {
			a, err := b.ask(ctx, p, &j)
			if err != nil {
				return nil, err
			}
			if a.seconds[j.theirs()] > 0 {
				peers = append(peers, p)
			}
		}
	}
	// A warm-up pass comes first, because the peer's pass has used the caches meanwhile.
	ours := func() (wall, processor float64, err error) {
		if err := j.fresh(); err != nil {
			return 0, 0, err
		}
		j.pass()
		if err := j.fresh(); err != nil {
			return 0, 0, err
		}
		start := time.Now()
		used := j.pass()
		wall = time.Since(start).Seconds()
		if used == 0 { // the system has no clock for processor time
			return wall, wall, nil
		}
		return wall, used.Seconds(), nil
	}
	runtime.GC()
	var wall, processor []float64
	theirs, ratios, ares := map[string][]float64{}, map[string][]float64{}, map[string]float64{}
	for range b.runs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var used float64
		if j.pass != nil {
			var elapsed float64
			if elapsed, used, err = ours(); err != nil {
				return nil, err
			}
			wall, processor = append(wall, elapsed), append(processor, used)
		}
		for _, p := range peers {
			a, err := b.ask(ctx, p, &j)
			if err != nil {
				return nil, err
			}
			x := a.seconds[j.theirs()] * n
			theirs[p.Name], ratios[p.Name] = append(theirs[p.Name], x), append(ratios[p.Name], x/used)
			if a.hasARE {
				ares[p.Name] = a.are
			}
		}
	}
	put := func(structure, metric string, v float64, unit string) {
		rows = append(rows, row(structure, j.variant, j.memory, j.task, metric, v, unit, b.t.Name))
	}
	if j.pass != nil {
		put(j.structure, "speed", n/1e6/median(wall), "Mpackets/s")
		put(j.structure, "speed by processor time", n/1e6/median(processor), "Mpackets/s")
		put(j.structure, "spread", spread(wall), "ratio")
	}
	for _, p := range peers {
		put(j.structure+" of "+p.Name, "speed by processor time", n/1e6/median(theirs[p.Name]), "Mpackets/s")
		if j.pass != nil {
			put(j.structure, "ratio to "+p.Name, median(ratios[p.Name]), "times")
			put(j.structure, "spread of ratio to "+p.Name, spread(ratios[p.Name]), "ratio")
		}
		if are, ok := ares[p.Name]; ok && strings.HasPrefix(j.variant, "threads ") {
			rows = append(rows, row(j.structure+" of "+p.Name, j.variant, j.memory, "flow size by threads", "ARE", are,
				"ratio", b.t.Name))
		}
	}
	return rows, nil
}

// spread is the largest value minus the smallest, divided by the median.
func spread(x []float64) float64 { return (slices.Max(x) - slices.Min(x)) / median(x) }

// programs are rows that describe the machine and the peers.
func (b *bench) programs() []suite.Row {
	rows := []suite.Row{row("machine", machine(), 0, "machine", "processors", float64(runtime.NumCPU()), "processors",
		b.t.Name)}
	for _, p := range b.peers {
		rows = append(rows, row(p.Name, b.about[p.Name], 0, "peer", "key", float64(b.t.KeyBytes()), "bytes", b.t.Name))
	}
	return rows
}

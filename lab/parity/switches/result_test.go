// SPDX-License-Identifier: Apache-2.0

package switches

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
	"strings"
	"testing"
)

// output is a packet that left by a port.
type output struct {
	port  uint32
	frame []byte
}

func (o output) compare(p output) int {
	if c := int(o.port) - int(p.port); c != 0 {
		return c
	}
	return bytes.Compare(o.frame, p.frame)
}

func (o output) equal(p output) bool { return o.compare(p) == 0 }

// result is everything that a run shows about a switch.
type result struct {
	outputs    [][]output // outputs of each injected packet, in the order of injection; sorted within a packet
	packetOuts []output   // outcomes of the controller's packets, in their order
	packetIns  [][]byte   // metadata and payload, in their order
	digests    [][]byte   // in their order
	counters   []counter  // by name and key
	banks      []bank     // by name and number
	punted     []int      // packet-ins before each window of packets; only on the switch that sets the expectations
}

// counter is a counter cell.
type counter struct {
	name           string // name of the counter, with its index or entry
	packets, bytes int64
}

// bank is a bank of a register.
type bank struct {
	name  string
	cells []uint32
}

// totals are the numbers in a row of the report.
type totals struct {
	packets, left, packetIns, digests, counters, cells, filled int
}

func (r *result) totals() (t totals) {
	t.packets, t.packetIns, t.digests, t.counters = len(r.outputs), len(r.packetIns), len(r.digests), len(r.counters)
	t.left = len(r.packetOuts)
	for _, o := range r.outputs {
		t.left += len(o)
	}
	for _, b := range r.banks {
		t.cells += len(b.cells)
		for _, c := range b.cells {
			if c != 0 {
				t.filled++
			}
		}
	}
	return t
}

func (t totals) String() string {
	return fmt.Sprintf(
		"%d packets in, %d out, %d packet-ins, %d digests, %d counters, %d register cells, %d of them not zero",
		t.packets, t.left, t.packetIns, t.digests, t.counters, t.cells, t.filled)
}

const block = 1000 // packets to a line of what is recorded

// lines is the form of a result in testdata: a line for each part, with a digest, so that
// a difference names its part.
func (r *result) lines() []string {
	out := []string{r.totals().String()}
	add := func(what string, write func(h hash.Hash)) {
		h := sha256.New()
		write(h)
		out = append(out, fmt.Sprintf("%s: %x", what, h.Sum(nil)[:12]))
	}
	for i := 0; i < len(r.outputs); i += block {
		part := r.outputs[i:min(i+block, len(r.outputs))]
		add(fmt.Sprintf("packets %d to %d", i, i+len(part)-1), func(h hash.Hash) {
			for _, o := range part {
				writeOutputs(h, o)
			}
		})
	}
	add("packets of the controller", func(h hash.Hash) { writeOutputs(h, r.packetOuts) })
	add("packet-ins", func(h hash.Hash) { writeBytes(h, r.packetIns) })
	add("digests", func(h hash.Hash) { writeBytes(h, r.digests) })
	for _, c := range r.counters {
		out = append(out, fmt.Sprintf("counter %s: %d packets, %d bytes", c.name, c.packets, c.bytes))
	}
	for _, b := range r.banks {
		add("register "+b.name, func(h hash.Hash) {
			for _, c := range b.cells {
				h.Write(binary.BigEndian.AppendUint32(nil, c))
			}
		})
	}
	return out
}

func writeOutputs(h hash.Hash, outputs []output) {
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(outputs))))
	for _, o := range outputs {
		h.Write(binary.BigEndian.AppendUint32(nil, o.port))
		writeBytes(h, [][]byte{o.frame})
	}
}

func writeBytes(h hash.Hash, all [][]byte) {
	for _, b := range all {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
		h.Write(b)
	}
}

// differences reports differences, up to a number of them.
type differences struct {
	t    *testing.T
	n    int
	what string
}

func (d *differences) add(format string, args ...any) {
	d.t.Helper()
	if d.n++; d.n <= 5 {
		d.t.Errorf(d.what+format, args...)
	}
}

func (d *differences) end() {
	d.t.Helper()
	if d.n > 5 {
		d.t.Errorf("%s%d differences in all", d.what, d.n)
	}
}

// compareLines compares a result with a recorded one.
func compareLines(t *testing.T, got, want []string) {
	t.Helper()
	d := &differences{t: t, what: "not as BMv2 had it when recorded: "}
	defer d.end()
	if len(got) != len(want) {
		d.add("%d lines, %d recorded", len(got), len(want))
		return
	}
	for i := range want {
		if got[i] != want[i] {
			d.add("\n%s, recorded\n%s", got[i], want[i])
		}
	}
}

// compare compares two switches' results byte for byte.
func compare(t *testing.T, soft, bm *result, in []arrival) {
	t.Helper()
	d := &differences{t: t, what: "the switches differ: "}
	defer d.end()
	for i := range soft.outputs {
		if !slices.EqualFunc(soft.outputs[i], bm.outputs[i], output.equal) {
			d.add("packet %d, by port %d\n% x\nbecame on the soft switch%s\non BMv2%s",
				i, in[i].port, in[i].frame, format(soft.outputs[i]), format(bm.outputs[i]))
		}
	}
	if a, b := format(soft.packetOuts), format(bm.packetOuts); a != b {
		d.add("packets of the controller: soft switch%s\nBMv2%s", a, b)
	}
	compareBytes(d, "packet-in", soft.packetIns, bm.packetIns)
	compareBytes(d, "digest", soft.digests, bm.digests)
	if len(soft.counters) != len(bm.counters) {
		d.add("%d counters, BMv2 has %d", len(soft.counters), len(bm.counters))
	} else {
		for i, c := range soft.counters {
			if c != bm.counters[i] {
				d.add("counter %+v, BMv2 has %+v", c, bm.counters[i])
			}
		}
	}
	if len(soft.banks) != len(bm.banks) {
		d.add("%d banks of registers, BMv2 has %d", len(soft.banks), len(bm.banks))
		return
	}
	for i, b := range soft.banks {
		for cell := range b.cells {
			if want := bm.banks[i].cells[cell]; b.cells[cell] != want {
				d.add("register %s, cell %d: %#x, BMv2 has %#x", b.name, cell, b.cells[cell], want)
			}
		}
	}
}

func compareBytes(d *differences, what string, soft, bm [][]byte) {
	if len(soft) != len(bm) {
		d.add("%d %ss, BMv2 had %d", len(soft), what, len(bm))
		return
	}
	for i := range soft {
		if !bytes.Equal(soft[i], bm[i]) {
			d.add("%s %d:\n% x, BMv2\n% x", what, i, soft[i], bm[i])
		}
	}
}

func format(outputs []output) string {
	var b strings.Builder
	for _, o := range outputs {
		fmt.Fprintf(&b, "\n  by port %d: % x", o.port, o.frame)
	}
	if b.Len() == 0 {
		return "\n  nothing"
	}
	return b.String()
}

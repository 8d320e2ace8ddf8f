// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/hostagent/hostv1"
)

// chunks splits a report.
func chunks(epoch uint64, data []byte, sizes ...int) (out []*hostv1.ReportChunk) {
	at := 0
	for _, n := range sizes {
		out = append(out, &hostv1.ReportChunk{Epoch: epoch, Role: "r", TotalBytes: uint64(len(data)),
			Checksum: crc32.Checksum(data, castagnoli), Offset: uint64(at), Data: data[at : at+n]})
		at += n
	}
	return out
}

func all(*hostv1.ReportChunk) error { return nil }

func TestAssembler(t *testing.T) {
	data := []byte("0123456789")
	edit := func(change func(c []*hostv1.ReportChunk)) []*hostv1.ReportChunk {
		c := chunks(1, data, 4, 4, 2)
		change(c)
		return c
	}
	tests := []struct {
		name   string
		chunks []*hostv1.ReportChunk
		want   string // expected error; empty for none
	}{
		{"in order", edit(func([]*hostv1.ReportChunk) {}), ""},
		{"empty report", chunks(1, nil, 0), ""},
		{"no start", chunks(1, data, 4, 6)[1:], "begins at offset 4; expected 0"},
		{"out of order", edit(func(c []*hostv1.ReportChunk) { c[1], c[2] = c[2], c[1] }),
			"out of order, at offset 8; expected 4"},
		{"a chunk twice", edit(func(c []*hostv1.ReportChunk) { c[1] = c[0] }), "out of order"},
		{"larger than announced", edit(func(c []*hostv1.ReportChunk) { c[2].Data = []byte("890") }), "larger than announced"},
		{"another size", edit(func(c []*hostv1.ReportChunk) { c[1].TotalBytes = 11 }), "announces 11 bytes"},
		{"another report", edit(func(c []*hostv1.ReportChunk) { c[1].Epoch = 2 }), "has ended"},
		{"no data", edit(func(c []*hostv1.ReportChunk) { c[1].Data = nil }), "without data"},
		{"checksum", edit(func(c []*hostv1.ReportChunk) { c[1].Data = []byte("4568") }), "checksum"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			x := assembler{limit: 100}
			var got []byte
			var failed error
			for _, c := range tc.chunks {
				done, refusal, err := x.add(proto.CloneOf(c), all)
				if refusal != nil {
					t.Fatalf("refused: %v", refusal)
				}
				if err != nil {
					failed = err
					break
				}
				if done != nil {
					got = done
				}
			}
			switch {
			case tc.want == "" && (failed != nil || got == nil):
				t.Errorf("report %q, %v", got, failed)
			case tc.want != "" && (failed == nil || !strings.Contains(failed.Error(), tc.want)):
				t.Errorf("error %v, want %q", failed, tc.want)
			}
		})
	}
}

// TestAssemblerRefuses: a report that is too large or not admitted is skipped without allocating
// memory, and the next report is accepted.
func TestAssemblerRefuses(t *testing.T) {
	x := assembler{limit: 8}
	admit := func(c *hostv1.ReportChunk) error {
		if c.GetEpoch() != 2 {
			t.Errorf("epoch %d was admitted before its size was checked", c.GetEpoch())
		}
		return errors.New("unknown epoch")
	}
	var refusals []string
	for _, c := range append(chunks(1, []byte("0123456789"), 5, 5), chunks(2, []byte("01"), 2)...) {
		_, refusal, err := x.add(c, admit)
		if err != nil {
			t.Fatal(err)
		}
		if refusal != nil {
			refusals = append(refusals, refusal.Error())
		}
		if x.data != nil {
			t.Errorf("%d bytes kept of a refused report", len(x.data))
		}
	}
	if want := []string{`the report of role "r" in epoch 1 has 10 bytes; agents.max-report allows 8`,
		"unknown epoch"}; !slices.Equal(refusals, want) {
		t.Errorf("refusals %q, want %q", refusals, want)
	}
	if done, _, err := x.add(chunks(3, []byte("ok"), 2)[0], all); string(done) != "ok" || err != nil {
		t.Errorf("the next report: %q, %v", done, err)
	}
}

// FuzzAgentMessages: whatever the sequence of messages, the assembler keeps at most its limit, and
// a report that it returns has the announced size and checksum.
func FuzzAgentMessages(f *testing.F) {
	for _, list := range [][]*hostv1.ReportChunk{chunks(1, []byte("0123456789"), 4, 6), chunks(2, nil, 0)} {
		var b []byte
		for _, c := range list {
			m, _ := proto.Marshal(&hostv1.AgentMessage{Message: &hostv1.AgentMessage_Chunk{Chunk: c}})
			b = append(append(b, byte(len(m))), m...)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		x := assembler{limit: 64}
		for len(data) > 0 {
			n := min(int(data[0]), len(data)-1)
			var m hostv1.AgentMessage
			err := proto.Unmarshal(data[1:1+n], &m)
			data = data[1+n:]
			if err != nil {
				return
			}
			_ = checkHello(m.GetHello())
			c := m.GetChunk()
			if c == nil {
				continue
			}
			done, _, err := x.add(c, all)
			if err != nil {
				return
			}
			if uint64(len(x.data)) > x.limit {
				t.Fatalf("%d bytes kept, the limit is %d", len(x.data), x.limit)
			}
			if done != nil && (uint64(len(done)) != c.GetTotalBytes() || crc32.Checksum(done, castagnoli) != c.GetChecksum()) {
				t.Fatalf("report of %d bytes, announced %d", len(done), c.GetTotalBytes())
			}
			if done != nil && !bytes.Equal(done[c.GetOffset():], c.GetData()) {
				t.Fatal("the last chunk is not the end of the report")
			}
		}
	})
}

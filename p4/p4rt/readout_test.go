// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
)

const measured = "univmon-300k"

// fill writes a pattern in all banks of a register, and returns what bank b must read as.
func fill(t testing.TB, s *testSwitch, r *p4values.Register) func(bank, cell int) uint32 {
	t.Helper()
	value := func(bank, cell int) uint32 { return uint32(bank*r.Readout.Cells+cell)*2654435761 + 1 }
	for bank := range r.Readout.Banks {
		for i := range r.Readout.Cells {
			if err := s.sw.WriteRegister(r.Name, bank*r.Readout.Cells+i, uint64(value(bank, i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	return value
}

func TestReadBanks(t *testing.T) {
	s, c := ready(t, program(t, measured))
	cat, _ := c.Catalog()
	var names []string
	var values []func(bank, cell int) uint32
	for _, r := range cat.Readouts() {
		names, values = append(names, r.Name), append(values, fill(t, s, r))
	}
	banks, err := c.ReadBanks(t.Context(), 1, names...)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range banks {
		if b.Len() != b.Register.Readout.Cells {
			t.Fatalf("%s: %d cells", b.Register.Name, b.Len())
		}
		for j := range b.Len() {
			if b.At(j) != values[i](1, j) {
				t.Fatalf("%s[%d] = %#x, want %#x", b.Register.Name, j, b.At(j), values[i](1, j))
			}
		}
	}
	// The bank is clear now, and the other bank is unchanged.
	again, err := readBank(t.Context(), c, names[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	other, err := readBank(t.Context(), c, names[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	for j := range again.Len() {
		if again.At(j) != 0 || other.At(j) != values[0](0, j) {
			t.Fatalf("cell %d: %#x after the read-out, %#x in the other bank", j, again.At(j), other.At(j))
		}
	}
	if _, err := readBank(t.Context(), c, names[0], 2); err == nil || !strings.Contains(err.Error(), "no bank 2") {
		t.Errorf("a bank that is not there: %v", err)
	}
	if _, err := readBank(t.Context(), c, "nope", 0); err == nil || !strings.Contains(err.Error(), names[0]) {
		t.Errorf("a register that is not there: %v", err)
	}
}

// Two read-outs at once share the window and do not mix.
func TestReadBanksTogether(t *testing.T) {
	s, c := ready(t, program(t, measured))
	cat, _ := c.Catalog()
	regs := cat.Readouts()[:2]
	type result struct {
		cells *p4rt.Cells
		err   error
	}
	results := make([]chan result, len(regs))
	values := make([]func(bank, cell int) uint32, len(regs))
	for i, r := range regs {
		values[i] = fill(t, s, r)
		results[i] = make(chan result, 1)
	}
	for i, r := range regs {
		go func() {
			cells, err := readBank(t.Context(), c, r.Name, 0)
			results[i] <- result{cells, err}
		}()
	}
	for i := range regs {
		got := <-results[i]
		if got.err != nil {
			t.Fatal(got.err)
		}
		for j := range got.cells.Len() {
			if got.cells.At(j) != values[i](0, j) {
				t.Fatalf("register %d cell %d = %#x", i, j, got.cells.At(j))
			}
		}
	}
}

func TestObligation15Registers(t *testing.T) {
	s, c := ready(t, program(t, measured))
	cat, _ := c.Catalog()
	r := cat.Readouts()[0]
	value := fill(t, s, r)
	s.dropRequests()
	// A backup cannot send packets: it reads the idle bank by register, and clears nothing.
	b := dial(t, p4rt.Config{Target: s.addr, DeviceID: 1, Mode: p4rt.Backup})
	waitReady(t, b)
	s.dropRequests()
	for range 2 {
		cells, err := readBank(t.Context(), b, r.Name, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range cells.Len() {
			if cells.At(i) != value(1, i) {
				t.Fatalf("cell %d = %#x", i, cells.At(i))
			}
		}
	}
	// Only cells of the idle bank are requested, because packets write to the other one.
	requested := 0
	for _, q := range seen[*p4v1.ReadRequest](s.meddler) {
		for _, e := range q.GetEntities() {
			i := e.GetRegisterEntry().GetIndex()
			if i == nil || int(i.GetIndex())/r.Readout.Cells != 1 {
				t.Fatalf("a read requests %v", e)
			}
			requested++
		}
	}
	if requested != 2*r.Readout.Cells {
		t.Errorf("two reads request %d cells, a bank has %d", requested, r.Readout.Cells)
	}
	t.Run("a program without read-out is cleared by register", func(t *testing.T) {
		s, c := ready(t, entities(t))
		for i := range 16 {
			if err := s.sw.WriteRegister("I.words", i, uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		s.dropRequests()
		for _, want := range []uint32{1, 0} {
			cells, err := readBank(t.Context(), c, "words", 0)
			if err != nil || cells.Len() != 16 {
				t.Fatal(err)
			}
			for i := range cells.Len() {
				if cells.At(i) != want*uint32(i) {
					t.Fatalf("cell %d = %d", i, cells.At(i))
				}
			}
			reads := seen[*p4v1.ReadRequest](s.meddler)
			if len(reads) != 1 || len(reads[0].GetEntities()) != 1 || reads[0].Entities[0].GetRegisterEntry().Index != nil {
				t.Errorf("the reads of a bank that is the whole register are %v, want one by wildcard", reads)
			}
			if writes := seen[*p4v1.WriteRequest](s.meddler); len(writes) != int(want) {
				t.Errorf("cells that are %d × their index are cleared by %d writes", want, len(writes))
			}
			s.dropRequests()
		}
	})
	t.Run("banks that are cleared by register", func(t *testing.T) {
		p := entities(t)
		r := p.P4Info.Registers[slices.IndexFunc(p.P4Info.Registers, func(r *p4configv1.Register) bool {
			return r.Preamble.Alias == "words"
		})]
		r.Preamble.Annotations = append(r.Preamble.Annotations, "@netsketch_readout(object=1, banks=2)")
		s, c := ready(t, p)
		for i := range 16 {
			if err := s.sw.WriteRegister("I.words", i, uint64(i%3)); err != nil {
				t.Fatal(err)
			}
		}
		s.dropRequests()
		for range 2 { // of cells 8 to 15, those with 0 before are 9, 12 and 15
			if cells, err := readBank(t.Context(), c, "words", 1); err != nil || cells.Len() != 8 {
				t.Fatal(err)
			}
			var cleared []int64
			writes := seen[*p4v1.WriteRequest](s.meddler)
			if len(writes) != 1 {
				t.Errorf("a bank is cleared by %d requests", len(writes))
			}
			for _, w := range writes {
				for _, u := range w.GetUpdates() {
					cleared = append(cleared, u.GetEntity().GetRegisterEntry().GetIndex().GetIndex())
				}
			}
			if !slices.Equal(cleared, []int64{8, 10, 11, 13, 14}) {
				t.Errorf("cells %v of the register are cleared", cleared)
			}
		}
	})
	t.Run("neither read-out nor registers", func(t *testing.T) {
		s := startSwitch(t)
		s.meddle(func(m *meddler) {
			m.read = func(*p4v1.ReadResponse) *p4v1.ReadResponse { return &p4v1.ReadResponse{} }
		})
		c := dial(t, config(s, entities(t)))
		waitReady(t, c)
		if _, err := readBank(t.Context(), c, "words", 0); err == nil {
			t.Error("cells out of nothing")
		}
	})
}

// requestIndex returns the place in the bank that a read-out request asks for.
func requestIndex(cat *p4values.Catalog, m *p4v1.PacketOut) uint64 {
	for _, f := range m.GetMetadata() {
		if h := cat.PacketOut; h.Fields[h.ByID(f.GetMetadataId())].Name == "index" {
			v, _ := p4values.Uint64(f.GetValue())
			return v
		}
	}
	return ^uint64(0)
}

// Faults of a switch during a read-out.
func TestReadoutFaults(t *testing.T) {
	start := func(t *testing.T) (*testSwitch, *p4rt.Client, *p4values.Catalog, *p4values.Register) {
		s := startSwitch(t)
		cfg := config(s, program(t, measured))
		cfg.ReadoutTimeout = 500 * time.Millisecond
		c := dial(t, cfg)
		waitReady(t, c)
		cat, err := c.Catalog()
		if err != nil {
			t.Fatal(err)
		}
		fill(t, s, cat.Readouts()[0])
		return s, c, cat, cat.Readouts()[0]
	}
	lostError := func(t *testing.T, err error) *p4rt.ReadoutError {
		t.Helper()
		var e *p4rt.ReadoutError
		if !errors.As(err, &e) || !errors.Is(err, p4rt.ErrReadoutLost) {
			t.Fatalf("got %v", err)
		}
		return e
	}
	t.Run("a reply is lost", func(t *testing.T) {
		s, c, cat, r := start(t)
		s.meddle(func(m *meddler) {
			m.up = func(r *p4v1.StreamMessageRequest) (*p4v1.StreamMessageRequest, error) {
				if i := requestIndex(cat, r.GetPacket()); i == 512 || i == 768 || i == 2048 {
					return nil, nil
				}
				return r, nil
			}
		})
		cells, err := readBank(t.Context(), c, r.Name, 0)
		e := lostError(t, err)
		if cells != nil || len(e.Lost) != 2 || e.Lost[0] != (p4rt.CellRange{First: 512, Count: 512}) ||
			e.Lost[1] != (p4rt.CellRange{First: 2048, Count: 256}) || len(e.Unread) != 0 {
			t.Errorf("%+v", e)
		}
		for _, want := range []string{s.addr, r.Name, "bank 0", "512-1023", "2048-2303"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
		// The session still works.
		s.meddle(func(m *meddler) { m.up = nil })
		if _, err := readBank(t.Context(), c, r.Name, 1); err != nil {
			t.Error(err)
		}
	})
	t.Run("the switch stops answering", func(t *testing.T) {
		s, c, _, r := start(t)
		s.meddle(func(m *meddler) {
			m.down = func(m *p4v1.StreamMessageResponse) *p4v1.StreamMessageResponse { return nil }
		})
		_, err := readBank(t.Context(), c, r.Name, 0)
		e := lostError(t, err)
		if n := e.Lost[0].Count; n != 32*256 || len(e.Unread) != 1 || e.Unread[0].First != n {
			t.Errorf("%+v", e)
		}
	})
	t.Run("the stream breaks", func(t *testing.T) {
		s, c, cat, r := start(t)
		s.meddle(func(m *meddler) {
			m.up = func(r *p4v1.StreamMessageRequest) (*p4v1.StreamMessageRequest, error) {
				if requestIndex(cat, r.GetPacket()) == 40*256 {
					return nil, unavailable()
				}
				return r, nil
			}
		})
		_, err := readBank(t.Context(), c, r.Name, 0)
		e := lostError(t, err)
		if !errors.Is(err, p4rt.ErrSessionLost) || len(e.Lost) == 0 ||
			!strings.Contains(err.Error(), "the switch is gone") {
			t.Errorf("%v", err)
		}
		s.meddle(func(m *meddler) { m.up = nil })
		waitReady(t, c)
		if _, err := readBank(t.Context(), c, r.Name, 1); err != nil {
			t.Errorf("in the next session: %v", err)
		}
	})
	t.Run("malformed replies", func(t *testing.T) {
		for name, spoil := range map[string]func(*p4v1.PacketIn){
			"too short":      func(m *p4v1.PacketIn) { m.Payload = m.Payload[:100] },
			"another object": func(m *p4v1.PacketIn) { m.Metadata[2].Value = []byte{9} },
			"another bank":   func(m *p4v1.PacketIn) { m.Metadata[3].Value = []byte{1} },
			"another index":  func(m *p4v1.PacketIn) { m.Metadata[4].Value = []byte{0xff, 0} },
			"no number":      func(m *p4v1.PacketIn) { m.Metadata[5].Value = nil },
			"an unknown seq": func(m *p4v1.PacketIn) { m.Metadata[5].Value = []byte{1, 2, 3, 4, 5} },
		} {
			t.Run(name, func(t *testing.T) {
				s, c, _, r := start(t)
				var n atomic.Int32
				s.meddle(func(m *meddler) {
					m.down = func(m *p4v1.StreamMessageResponse) *p4v1.StreamMessageResponse {
						if m.GetPacket() != nil && n.Add(1) == 5 {
							m = proto.Clone(m).(*p4v1.StreamMessageResponse)
							spoil(m.GetPacket())
						}
						return m
					}
				})
				_, err := readBank(t.Context(), c, r.Name, 0)
				if e := lostError(t, err); len(e.Lost) != 1 || e.Lost[0] != (p4rt.CellRange{First: 1024, Count: 256}) {
					t.Errorf("%v", err)
				}
			})
		}
	})
	t.Run("duplicate and unsolicited replies", func(t *testing.T) {
		s, c, _, r := start(t)
		stray := false
		s.meddle(func(m *meddler) {
			m.up = func(r *p4v1.StreamMessageRequest) (*p4v1.StreamMessageRequest, error) {
				if !stray && r.GetPacket() != nil {
					stray = true
					again := proto.Clone(r).(*p4v1.StreamMessageRequest)
					if err := s.sw.PacketOut(serialised(again.GetPacket())); err != nil {
						t.Error(err)
					}
				}
				return r, nil
			}
		})
		if _, err := readBank(t.Context(), c, r.Name, 0); err != nil {
			t.Fatal(err)
		}
		if got := c.Stats().LateReplies; got != 1 {
			t.Errorf("%d replies were late", got)
		}
	})
	t.Run("a canceled call", func(t *testing.T) {
		s, c, _, r := start(t)
		ctx, cancel := context.WithCancel(t.Context())
		s.meddle(func(m *meddler) {
			m.down = func(*p4v1.StreamMessageResponse) *p4v1.StreamMessageResponse {
				cancel()
				return nil
			}
		})
		if _, err := readBank(ctx, c, r.Name, 0); !errors.Is(err, context.Canceled) ||
			!errors.Is(err, p4rt.ErrReadoutLost) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a canceled call, then another bank", func(t *testing.T) {
		s, c, _, r := start(t)
		const window = 32
		var asked, most atomic.Int64
		full, open := make(chan struct{}), make(chan struct{})
		s.meddle(func(m *meddler) {
			m.up = func(r *p4v1.StreamMessageRequest) (*p4v1.StreamMessageRequest, error) {
				if n := asked.Add(1); n > most.Load() {
					if most.Store(n); n == window {
						close(full)
					}
				}
				return r, nil
			}
			m.down = func(r *p4v1.StreamMessageResponse) *p4v1.StreamMessageResponse {
				<-open
				asked.Add(-1)
				return r
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-full; cancel() }()
		if _, err := readBank(ctx, c, r.Name, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		close(open)
		if _, err := readBank(t.Context(), c, r.Name, 1); err != nil {
			t.Error(err)
		}
		if most.Load() > window {
			t.Errorf("%d requests were under way", most.Load())
		}
	})
	t.Run("a stream error", func(t *testing.T) {
		s, c, cat, r := start(t)
		bad := cat.PacketOut.Fields[cat.PacketOut.ByName("egress_port")].ID
		s.meddle(func(m *meddler) {
			m.up = func(r *p4v1.StreamMessageRequest) (*p4v1.StreamMessageRequest, error) {
				if requestIndex(cat, r.GetPacket()) == 256 {
					for _, f := range r.GetPacket().GetMetadata() {
						if f.GetMetadataId() == bad {
							f.Value = []byte{1, 2, 3, 4}
						}
					}
				}
				return r, nil
			}
		})
		_, err := readBank(t.Context(), c, r.Name, 0)
		if e := lostError(t, err); !strings.Contains(err.Error(), "egress_port") || len(e.Unread) == 0 &&
			len(e.Lost) == 0 {
			t.Errorf("got %v", err)
		}
		if c.Stats().StreamErrors != 1 {
			t.Errorf("%d stream errors", c.Stats().StreamErrors)
		}
	})
}

// serialised returns a packet-out as bytes. In the test's program, all metadata except the first
// field have whole bytes.
func serialised(m *p4v1.PacketOut) []byte {
	widths := []int{1, 2, 1, 1, 4, 4}
	var out []byte
	for i, f := range m.GetMetadata() {
		v := make([]byte, widths[i])
		copy(v[len(v)-len(f.GetValue()):], f.GetValue())
		out = append(out, v...)
	}
	return append(out, m.GetPayload()...)
}

// readouts returns the annotations of the registers that can be read.
func readouts(p *p4rt.Program) (all []*p4configv1.KeyValuePairList) {
	for _, r := range p.P4Info.GetRegisters() {
		for _, a := range r.GetPreamble().GetStructuredAnnotations() {
			if a.GetName() == p4values.AnnotationReadout {
				all = append(all, a.GetKvPairList())
			}
		}
	}
	return all
}

// A program that lacks the object refuses the read-out, which ends at once.
func TestReadoutRefused(t *testing.T) {
	s := startSwitch(t)
	p := program(t, measured)
	for _, l := range readouts(p) { // makes P4Info name a wrong object number
		for _, kv := range l.GetKvPairs() {
			if kv.GetKey() == "object" || kv.GetKey() == "marker" {
				kv.GetValue().Value = &p4configv1.Expression_Int64Value{Int64Value: kv.GetValue().GetInt64Value() + 100}
			}
		}
	}
	c := dial(t, config(s, p))
	waitReady(t, c)
	cat, _ := c.Catalog()
	_, err := readBank(t.Context(), c, cat.Readouts()[0].Name, 0)
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

// readAllBanks measures reading one bank of every register that the program measures with. touch,
// if set, is called before each reading.
func readAllBanks(b *testing.B, c *p4rt.Client, touch func()) {
	cat, err := c.Catalog()
	if err != nil {
		b.Fatal(err)
	}
	var names []string
	var bytes int
	for _, r := range cat.Readouts() {
		names = append(names, r.Name)
		bytes += r.Readout.Cells * 4
	}
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		if touch != nil {
			touch()
		}
		cells, err := c.ReadBanks(b.Context(), 1, names...)
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range cells {
			c.Release()
		}
	}
	perRead := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
	b.ReportMetric(perRead/1e6, "ms/bank")
	b.ReportMetric(float64(bytes)/(1<<20), "MiB/bank")
	b.ReportMetric(perRead/1e6/(float64(bytes)/(1<<20)), "ms/MiB")
}

func BenchmarkReadBank(b *testing.B) {
	tests := []struct {
		name, program string
		idle          string // counters that do not change, by the end of their name
	}{{"univmon", "univmon", ""}, {"chamelemon", "chamelemon", ""}, {"chamelemon without IPv6", "chamelemon", "_ipv6"}}
	for _, test := range tests {
		b.Run(test.name, func(b *testing.B) {
			s, c := ready(b, program(b, test.program))
			s.meddle(func(m *meddler) { m.blind = true })
			cat, err := c.Catalog()
			if err != nil {
				b.Fatal(err)
			}
			packets := uint64(0)
			readAllBanks(b, c, func() {
				packets++
				for _, r := range cat.Readouts() {
					if counter := r.Readout.Counter; counter != nil &&
						(test.idle == "" || !strings.HasSuffix(counter.Name, test.idle)) {
						if err := s.sw.WriteCounter(counter.Name, 1,
							softswitch.CounterData{Packets: packets}); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		})
	}
}

func BenchmarkReadBankBMv2(b *testing.B) {
	p := program(b, "univmon")
	for _, l := range readouts(p) { // without counters, the client reads all cells
		l.KvPairs = slices.DeleteFunc(l.GetKvPairs(), func(kv *p4configv1.KeyValuePair) bool {
			return kv.GetKey() != "object" && kv.GetKey() != "banks"
		})
	}
	c := dial(b, p4rt.Config{Target: startBMv2(b), DeviceID: 1, Program: p})
	waitReady(b, c)
	readAllBanks(b, c, nil)
}

func BenchmarkBankFlip(b *testing.B) {
	_, c := ready(b, program(b, "univmon"))
	n := uint64(0)
	b.ResetTimer()
	for b.Loop() {
		n++
		if err := c.SetDefaultAction(b.Context(), "bank", "set_bank", p4rt.Uint("bank", n&1)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/flip")
}

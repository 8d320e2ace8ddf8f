// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"encoding/binary"
	"errors"
	"slices"
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

// A bank is skipped if no packet has changed it since it was cleared; otherwise it is read.
func TestEmptyBanksAreNotRead(t *testing.T) {
	const register = "ingress.chamelemon.upstream_ipv6"
	s := startSwitch(t)
	cfg := config(s, program(t, "chamelemon"))
	cfg.ReadoutTimeout = time.Second
	c := dial(t, cfg)
	waitReady(t, c)
	cat, err := c.Catalog()
	if err != nil {
		t.Fatal(err)
	}
	r, err := cat.Registers.Name(register)
	if err != nil {
		t.Fatal(err)
	}
	if r.Readout.Counter == nil {
		t.Fatal("the register has no counter")
	}
	all := (r.Readout.Cells + 255) / 256
	var requests, lose atomic.Int64
	var broken atomic.Bool
	s.meddle(func(m *meddler) {
		m.up = func(r *p4v1.StreamMessageRequest) (*p4v1.StreamMessageRequest, error) {
			if broken.Swap(false) {
				return nil, unavailable()
			}
			if requestIndex(cat, r.GetPacket()) == 1024 && lose.Load() > 0 {
				lose.Add(-1)
				return nil, nil
			}
			requests.Add(1)
			return r, nil
		}
	})
	// read reads a bank, and returns its cell 5 and the number of requests.
	read := func(t *testing.T, bank int) (uint32, int) {
		t.Helper()
		requests.Store(0)
		cells, err := readBank(t.Context(), c, register, bank)
		if err != nil {
			t.Fatal(err)
		}
		if cells.Len() != r.Readout.Cells {
			t.Fatalf("%d cells", cells.Len())
		}
		defer release(cells)
		for i := range cells.Len() {
			if i != 5 && cells.At(i) != 0 {
				t.Fatalf("cell %d is %#x", i, cells.At(i))
			}
		}
		return cells.At(5), int(requests.Load())
	}
	// packet changes a bank as a packet does.
	packets := uint64(0)
	packet := func(t *testing.T, bank int) {
		t.Helper()
		packets++
		if err := errors.Join(s.sw.WriteRegister(register, bank*r.Readout.Cells+5, 7),
			s.sw.WriteCounter(r.Readout.Counter.Name, bank, softswitch.CounterData{Packets: packets})); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(t *testing.T, bank int, want uint32, wantRequests int) {
		t.Helper()
		if got, n := read(t, bank); got != want || n != wantRequests {
			t.Errorf("bank %d: cell %d with %d requests, want %d with %d", bank, got, n, want, wantRequests)
		}
	}
	for bank := range 2 {
		expect(t, bank, 0, all) // the bank's contents are not known
		expect(t, bank, 0, 0)
		packet(t, bank)
		expect(t, bank, 7, all)
		expect(t, bank, 0, 0)
	}

	// Moved reports packets counted after the read-out, without reading the bank again.
	cells, err := readBank(t.Context(), c, register, 0)
	if err != nil {
		t.Fatal(err)
	}
	if moved, err := c.Moved(t.Context(), cells); err != nil || moved != 0 {
		t.Errorf("%d packets, error %v", moved, err)
	}
	packet(t, 0)
	if moved, err := c.Moved(t.Context(), cells); err != nil || moved == 0 {
		t.Errorf("%d packets, error %v", moved, err)
	}
	expect(t, 0, 7, all)

	// A bank that was not read completely is read again even if no packet came.
	packet(t, 0)
	lose.Store(1)
	if _, err := readBank(t.Context(), c, register, 0); !errors.Is(err, p4rt.ErrReadoutLost) {
		t.Fatalf("error %v", err)
	}
	expect(t, 0, 0, all)
	expect(t, 0, 0, 0)

	// A new session reads all cells.
	session := c.Status().Session
	broken.Store(true)
	if _, err := readBank(t.Context(), c, "ingress.chamelemon.upstream", 0); !errors.Is(err, p4rt.ErrSessionLost) {
		t.Fatalf("error %v", err)
	}
	waitStatus(t, c, "ready again", func(st p4rt.Status) bool {
		return st.State == p4rt.Ready &&
			st.Session != session
	})
	expect(t, 0, 0, all)
	expect(t, 0, 0, 0)

	// Without readable counters all cells are read.
	s.meddle(func(m *meddler) {
		m.read = func(r *p4v1.ReadResponse) *p4v1.ReadResponse {
			r.Entities = nil
			return r
		}
	})
	expect(t, 0, 0, all)
	expect(t, 0, 0, all)
}

func TestReadoutCountersMustBeThere(t *testing.T) {
	info := proto.Clone(program(t, "chamelemon").P4Info).(*p4configv1.P4Info)
	for _, c := range info.Counters {
		if c.Preamble.Name == "egress.chamelemon.encoded_ipv6" {
			c.Size = 1
		}
	}
	if _, err := p4values.NewCatalog(info); err == nil {
		t.Error("a counter with one cell for two banks is accepted")
	}
}

// Pieces of a bank that no packet has changed are skipped if the marks account for all packets.
func TestEmptyPiecesAreNotRead(t *testing.T) {
	const counters, heavy, counter = "ingress.univmon_src.counters", "ingress.univmon_src.heavy",
		"ingress.univmon_src.counted"
	const columns, levels, slots = 3 * 512, 16, 4 * 32 * 7 // cells of one of the first eight levels
	const marks = 10 * columns                             // the other eight levels have a quarter of the cells
	start := func(level, cells int) int { return min(level, 8)*cells + max(level-8, 0)*cells/4 }
	s := startSwitch(t)
	c := dial(t, config(s, program(t, "univmon-300k")))
	waitReady(t, c)
	var requests atomic.Int64
	s.meddle(func(m *meddler) {
		m.up = func(r *p4v1.StreamMessageRequest) (*p4v1.StreamMessageRequest, error) {
			requests.Add(1)
			return r, nil
		}
	})
	packets := uint64(0)
	packet := func(t *testing.T, level int, mark bool) {
		t.Helper()
		packets++
		err := errors.Join(s.sw.WriteRegister(counters, start(level, columns)+5, 7),
			s.sw.WriteRegister(heavy, start(level, slots)+1, 8),
			s.sw.WriteCounter(counter, 0, softswitch.CounterData{Packets: packets}))
		if mark {
			err = errors.Join(err, s.sw.WriteRegister(counters, marks+level, 1))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const all = (marks+256)/256 + 10*slots/256
	expect := func(t *testing.T, wantRequests int, in ...int) {
		t.Helper()
		requests.Store(0)
		cells, err := c.ReadBanks(t.Context(), 0, counters, heavy)
		if err != nil {
			t.Fatal(err)
		}
		defer release(cells...)
		if n := int(requests.Load()); n != wantRequests {
			t.Errorf("%d requests, want %d", n, wantRequests)
		}
		for level := range levels {
			want := [2]uint32{}
			if slices.Contains(in, level) {
				want = [2]uint32{7, 8}
			}
			if got := [2]uint32{cells[0].At(start(level, columns) + 5), cells[1].At(start(level, slots) + 1)}; got != want {
				t.Errorf("level %d: cells %v, want %v", level, got, want)
			}
		}
	}
	expect(t, all) // the bank's contents are not known
	expect(t, 0)
	packet(t, 1, true)
	expect(t, 1+6+4, 1) // the marks, 1,536 counters, and 896 cells of heavy keys from cell 896 on
	expect(t, 0)
	packet(t, 0, true)
	packet(t, 9, true) // 384 counters and 224 heavy-key cells, each in two answers
	expect(t, 1+6+2+4+2, 0, 9)
	packet(t, 2, true)
	packet(t, 3, false) // the packet's mark was read and cleared before
	expect(t, all, 2, 3)
	expect(t, 0)

	// Packets change counters and marks, and leave cells on the switch.
	for n := range 10 {
		ip := []byte{0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, byte(n), 10, 0, 0, 99}
		binary.BigEndian.PutUint16(ip[10:], ^uint16(0x4500+20+64<<8+253+2*10<<8+n+99))
		s.sw.Inject(1, append(append(make([]byte, 12), 8, 0), ip...), 0)
	}
	requests.Store(0)
	var want [2][]uint64
	for i, name := range []string{counters, heavy} {
		var err error
		if want[i], err = s.sw.ReadRegister(name, 0, []int{marks + 256, 10 * slots}[i]); err != nil {
			t.Fatal(err)
		}
	}
	cells, err := c.ReadBanks(t.Context(), 0, counters, heavy)
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	for i, c := range cells {
		for j, w := range want[i] {
			if uint64(c.At(j)) != w {
				t.Fatalf("%s[%d] is %d, want %d", c.Register.Name, j, c.At(j), w)
			}
			if i == 0 && j >= marks {
				counted += int(w)
			}
		}
	}
	if n := requests.Load(); counted != 10 || n < 11 || n > all/2 {
		t.Errorf("%d packets counted, %d requests", counted, n)
	}
}

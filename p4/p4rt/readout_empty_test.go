// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"errors"
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

// A bank that no packet has changed since it was cleared is not read, and only then.
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
	// read reads a bank and returns its cell 5 and how many requests that took.
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
		return cells.At(5), int(requests.Load())
	}
	// packet does what a packet does to a bank.
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
		expect(t, bank, 0, all) // what it holds is not known
		expect(t, bank, 0, 0)
		packet(t, bank)
		expect(t, bank, 7, all)
		expect(t, bank, 0, 0)
	}

	// Packets counted after the read-out are reported without another one.
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

	// A bank that was not read to the end is read again, although no packet came.
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

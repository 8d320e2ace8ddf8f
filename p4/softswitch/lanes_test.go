// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"time"
)

// counting is a switch whose counters are read out by packets, and the sum of the cells that were
// read.
type counting struct {
	*Switch
	mu    sync.Mutex
	cells []uint32 // cells of both banks
	asked uint32
}

const (
	countedObject   = 5
	countedRegister = "ingress.univmon_5t.counters"
)

func newCounting(t *testing.T, parallel int) *counting {
	t.Helper()
	c := &counting{Switch: router(t, "univmon-300k", Config{Parallel: parallel})}
	all, err := c.ReadRegister(countedRegister, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	c.cells = make([]uint32, len(all)/2)
	c.SetPacketIn(func(p []byte) {
		c.mu.Lock()
		defer c.mu.Unlock()
		at := binary.BigEndian.Uint32(p[len(p)-1024-8:])
		for i, b := at, p[len(p)-1024:]; len(b) > 0; i, b = i+1, b[4:] {
			c.cells[i] += binary.BigEndian.Uint32(b)
		}
	})
	return c
}

// ask reads out the next 256 cells.
func (c *counting) ask(bank byte) {
	at := c.asked % uint32(len(c.cells))
	c.asked += 256
	_ = c.PacketOut(readOutRequest(countedObject, bank, at, 0))
}

func (c *counting) flip(t *testing.T, bank byte) {
	t.Helper()
	if err := c.SetDefault("ingress.bank.bank", &Action{Name: "ingress.bank.set_bank",
		Params: [][]byte{{bank}}}); err != nil {
		t.Error(err)
	}
}

// total adds what is left in the register to what was read out.
func (c *counting) total(t *testing.T) []uint32 {
	t.Helper()
	left, err := c.ReadRegister(countedRegister, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	sum := slices.Clone(c.cells)
	for i, v := range left {
		sum[i%len(sum)] += uint32(v)
	}
	return sum
}

// TestLanesLoseNoCounts: lanes count, banks flip, cells are read out by packets and by the control
// plane, all at the same time; the sum of all counts equals the counts of one lane.
func TestLanesLoseNoCounts(t *testing.T) {
	t.Parallel()
	const workers, rounds = 4, 3
	pkts := sharedTrace(t, 2000)
	alone := newCounting(t, 1)
	for range workers * rounds {
		for _, p := range pkts {
			alone.Inject(0, p, 0)
		}
	}
	s := newCounting(t, workers)
	var wg, control sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range rounds {
				for _, p := range pkts {
					s.Inject(uint32(w), p, time.Duration(w))
				}
			}
		})
	}
	stop := make(chan struct{})
	control.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			s.flip(t, byte(n%2))
			for range n % 40 {
				s.ask(byte(1 - n%2))
			}
			if _, err := s.ReadRegister(countedRegister, 100, 200); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	close(stop)
	control.Wait()
	if want, got := alone.total(t), s.total(t); !slices.Equal(want, got) {
		t.Error("cells differ from those of one lane")
	}
	if a, b := alone.Stats(), s.Stats(); a.IngressDrops != b.IngressDrops || b.IndexErrors != 0 {
		t.Errorf("alone %+v\ntogether %+v", a, b)
	}
}

// TestReadsFindThePacket: a read-out after Inject has returned finds the packet counted, whichever
// lane ran it.
func TestReadsFindThePacket(t *testing.T) {
	t.Parallel()
	s := newCounting(t, 4)
	pkts := sharedTrace(t, 400)
	in := 0
	pkts = slices.DeleteFunc(pkts, func(p []byte) bool { // packets that are not counted
		before := s.Stats().IngressDrops
		s.Inject(0, p, 0)
		in++
		return s.Stats().IngressDrops > before
	})
	packetsCell := len(s.cells) - 256 // first cell of the packets by level
	for i := range 512 {
		s.Inject(uint32(i%4), pkts[i%len(pkts)], 0)
		in++
		s.asked = uint32(packetsCell)
		s.ask(0)
		var sum uint32
		for _, v := range s.cells[packetsCell:] {
			sum += v
		}
		if st := s.Stats(); uint64(sum) != uint64(in)-st.IngressDrops {
			t.Fatalf("%d of %d packets counted, %d dropped", sum, in, st.IngressDrops)
		}
	}
}

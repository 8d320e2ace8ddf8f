// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/sketch/flow"
)

// refPage has references for host indexes that follow one another: where the row of a flow is at
// its destination, plus one. Pages are allocated as flows appear.
type refPage [256]atomic.Uint64

// ref returns the reference for a flow. Without a page it allocates one, or returns nil.
func (a *Analyzer) ref(source int, index uint32, allocate bool) *atomic.Uint64 {
	at := &a.refs[source][index/uint32(len(refPage{}))]
	p := at.Load()
	if p == nil {
		if !allocate {
			return nil
		}
		if p = new(refPage); !at.CompareAndSwap(nil, p) {
			p = at.Load()
		}
	}
	return &p[index%uint32(len(p))]
}

// offsetBits is the width of the position of a row in a reference; the host is above it.
const offsetBits = 40

// twice is the reference of a flow that two hosts counted.
const twice = ^uint64(0)

// index stores where each incoming flow of a report is, so that join finds it by source and index.
func (a *Analyzer) index(host int, data []byte, epoch uint64, w *worker) error {
	if data == nil {
		return nil
	}
	rep, err := wire.Open(data)
	switch {
	case err != nil:
		return err
	case rep.Host != host || rep.Epoch != epoch:
		return fmt.Errorf("report of host %d, epoch %d, instead of epoch %d", rep.Host, rep.Epoch, epoch)
	case rep.SlotsPerFlow != a.net.SlotsPerFlow:
		return fmt.Errorf("its flows have %d slots each, expected %d", rep.SlotsPerFlow, a.net.SlotsPerFlow)
	}
	if n := rep.Counters[wire.Restarted]; n > 0 {
		return fmt.Errorf("its flow table was restarted in the epoch, %d times", n)
	}
	rep.SkipEgress()
	var row wire.IngressRow
	for {
		source, ok := rep.NextHost()
		if !ok {
			break
		}
		if source >= a.net.Hosts {
			return fmt.Errorf("packets from host number %d; the network has %d hosts, from number 0 on", source, a.net.Hosts)
		}
		for rep.NextIngress(&row) {
			if int(row.Index) >= a.net.Flows {
				return fmt.Errorf("host index %d in a table of %d flows", row.Index, a.net.Flows)
			}
			if down := a.net.Downlinks[host]; down >= 0 {
				w.received[down] += packets(row.Values)
			}
			if ref := a.ref(source, row.Index, true); ref.CompareAndSwap(0, uint64(host)<<offsetBits|uint64(row.At+1)) {
				w.arrived[source]++
			} else {
				ref.Store(twice)
			}
		}
	}
	return rep.Err()
}

// packets decodes the first of encoded values, the number of packets.
func packets(values []byte) int64 {
	mask, n := binary.Uvarint(values)
	if n <= 0 || mask&1 == 0 {
		return 0
	}
	v, _ := binary.Varint(values[n:])
	return v
}

// join compares the packets that a host sent with the arrived packets, and adds the flows to the
// slots on their paths.
func (a *Analyzer) join(r *Result, host int, w *worker) error {
	reports := r.reports
	if reports[host] == nil {
		return nil
	}
	rep, _ := wire.Open(reports[host]) // index has opened it before
	var row wire.EgressRow
	var sent, received wire.Values
	for n := 0; rep.NextEgress(&row); n++ {
		if err := sent.Decode(row.Values); err != nil {
			return err
		}
		if slot := slices.Max(row.Slots[:a.net.SlotsPerFlow]); int(slot) >= a.net.Slots {
			return fmt.Errorf("a flow has slot %d, but switches have %d slots", slot, a.net.Slots)
		}
		w.flows++
		destination, path := r.route(host, n, &row.Key)
		f := func() Flow {
			return Flow{Key: row.Key, Source: host, Destination: destination, Index: row.Index, Age: row.Age, Path: path,
				Slots: row.Slots, Untagged: row.Untagged, Sent: sent, Lost: sent}
		}
		odd := func(reason string) {
			x := f()
			x.odd = reason
			w.odd = append(w.odd, x)
		}
		values, own := a.arrived(reports, host, &row, destination)
		if values != nil || !own {
			w.arrived[host]--
		}
		if path == nil {
			path = &Path{From: -1, Last: -1}
			odd("the collector knows no path of it")
			continue
		}
		a.add(w, path, &row.Slots, &sent)
		w.sent[path.first()] += sent[wire.Packets]
		if !own {
			odd("hosts counted packets of several flows as those of this one")
			continue
		}
		received = wire.Values{}
		if values != nil {
			if bytes.Equal(values, row.Values) && len(path.Hops) > 0 {
				continue
			}
			if err := received.Decode(values); err != nil {
				return err
			}
		} else if sent == (wire.Values{}) { // without a header only
			continue
		}
		x := LossyFlow{Flow: f()}
		x.Lost.Sub(&received)
		x.Open = x.Lost != (wire.Values{}) && (reports[destination] == nil || r.uncounted[destination] > 0)
		switch {
		case x.Lost[wire.Packets] < 0:
			odd("more packets of it arrived than were sent")
		case slices.Min(x.Lost[:wire.FirstExtreme]) < 0:
			odd("more bytes, or packets of a kind, arrived of it than were sent: a device changed its packets")
		case len(path.Hops) == 0:
			w.unplaced = append(w.unplaced, x)
		case x.Open:
			w.open = append(w.open, x)
		default:
			w.lossy = append(w.lossy, x)
		}
	}
	return rep.Err()
}

// route returns the destination and the path of the flow in a row of a host's report.
func (r *Result) route(host, row int, k *flow.Key) (destination int, path *Path) {
	net := &r.analyzer.net
	if net.Search == nil {
		return net.Route(host, k)
	}
	destination, _, _ = net.Search.Ends(host, k)
	return destination, r.Path(host, row, nil)
}

// arrived returns the values of a flow at its destination, nil if nothing arrived. own is false if
// the values belong to another flow.
func (a *Analyzer) arrived(reports [][]byte, host int, row *wire.EgressRow, destination int) (values []byte, own bool) {
	ref := uint64(0)
	if int(row.Index) < a.net.Flows {
		if at := a.ref(host, row.Index, false); at != nil {
			ref = at.Load()
		}
	}
	switch {
	case ref == twice:
		return nil, false
	case ref == 0 || int(ref>>offsetBits) != destination || reports[destination] == nil:
		return nil, true
	}
	check, values := wire.IngressAt(reports[destination], int(ref&(1<<offsetBits-1))-1)
	return values, check == wire.Check(&row.Key)
}

// add adds the values of a flow to the slot of each switch on its path.
func (a *Analyzer) add(w *worker, path *Path, slots *[4]uint16, v *wire.Values) {
	n := a.net.words()
	counted := 0
	for i := range path.Hops {
		array := path.Hops[i].Array
		if array == None {
			continue
		}
		at := a.cell(array, slots[counted%a.net.SlotsPerFlow])
		counted++
		cell := w.expected[at : at+n]
		for j := range cell {
			cell[j] += v[a.net.statistic(j)]
		}
	}
}

// cell is the position of a slot's first value.
func (a *Analyzer) cell(array int32, slot uint16) int {
	return (int(array)*a.net.Slots + int(slot)) * a.net.words()
}

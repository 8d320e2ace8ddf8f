// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmi/value"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/yang"
)

// Paths that are followed at each collector.
var paths = []string{"/collector/devices/device[node=*]/state/connection",
	"/collector/hosts/host[node=*]/state/connected", "/univmon/node-summaries/node-summary[node=*][dimension=src]/state",
	"/univmon/summary/state/last-epoch"}

// row is the row of an epoch of a switch or host.
type row struct {
	epoch, packets uint64
	at             time.Time // time of arrival
}

// records are the records that collectors publish.
type records struct {
	packets uint64 // packets that each row must have

	mu    sync.Mutex
	ready map[string]map[string]time.Time // time since when the session is ready, by collector and switch or host
	rows  map[string][]row                // rows by switch or host, in the order of arrival
	wrong []wrongRow
	late  map[uint64]bool // epochs whose packets were sent late, so that their rows may have any number of packets
}

// wrongRow is a row with another number of packets than were sent.
type wrongRow struct {
	epoch uint64
	text  string
}

func newRecords(packets uint64) *records {
	return &records{packets: packets, ready: map[string]map[string]time.Time{}, rows: map[string][]row{},
		late: map[uint64]bool{}}
}

// follow subscribes to the collectors until ctx ends. wait waits for the end of the subscriptions.
func (r *records) follow(ctx context.Context, addresses []string) (wait func()) {
	var work sync.WaitGroup
	for i, address := range addresses {
		work.Go(func() {
			for ctx.Err() == nil {
				r.subscribe(ctx, "collector"+strconv.Itoa(i+1), address)
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		})
	}
	return work.Wait
}

func (r *records) subscribe(ctx context.Context, collector, address string) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond,
			Multiplier: 1, MaxDelay: 50 * time.Millisecond}}))
	if err != nil {
		return
	}
	defer conn.Close()
	stream, err := gpb.NewGNMIClient(conn).Subscribe(ctx, grpc.WaitForReady(true))
	if err != nil {
		return
	}
	list := &gpb.SubscriptionList{Encoding: gpb.Encoding_PROTO}
	for _, text := range paths {
		p, err := yang.ParsePath(text)
		if err != nil {
			panic(err) // a constant
		}
		list.Subscription = append(list.Subscription, &gpb.Subscription{Path: p, Mode: gpb.SubscriptionMode_ON_CHANGE})
	}
	if stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}}) != nil {
		return
	}
	newest := map[string]map[string]string{} // newest leaves by switch or host; unchanged leaves are not sent again
	for {
		m, err := stream.Recv()
		if err != nil {
			return
		}
		n := m.GetUpdate()
		for _, p := range n.GetDelete() {
			elems, device := source(n.GetPrefix(), p)
			if leaf := elems[len(elems)-1].GetName(); newest[device][leaf] != "" {
				delete(newest[device], leaf)
			} else {
				delete(newest, device)
			}
			if elems[1].GetName() == "hosts" && newest[device]["connected"] == "" {
				r.connection(collector, device, false)
			}
		}
		for _, u := range n.GetUpdate() {
			elems, device := source(n.GetPrefix(), u.GetPath())
			v, err := value.ToScalar(u.GetVal())
			if err != nil {
				continue
			}
			leaf := elems[len(elems)-1].GetName()
			if newest[device] == nil {
				newest[device] = map[string]string{}
			}
			newest[device][leaf] = fmt.Sprint(v)
			switch leaf {
			case "connection":
				r.connection(collector, device, newest[device][leaf] == "READY")
			case "connected":
				r.connection(collector, device, newest[device][leaf] == "true")
			case "last-epoch": // last-epoch follows the rows of its epoch, of which only the changed ones are sent
				for of, leaves := range newest {
					if of != "network" {
						r.row(of, newest[device][leaf], leaves["packets"])
					}
				}
			}
		}
	}
}

// source returns the elements of a path and the switch or host in its keys.
func source(prefix, path *gpb.Path) (elems []*gpb.PathElem, name string) {
	elems = slices.Concat(prefix.GetElem(), path.GetElem())
	for _, e := range elems {
		name += e.GetKey()["node"] + e.GetKey()["name"]
	}
	return elems, name
}

// connection records whether a collector has a session with a switch or a host's agent.
func (r *records) connection(collector, device string, ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready[collector] == nil {
		r.ready[collector] = map[string]time.Time{}
	}
	if !ready {
		delete(r.ready[collector], device)
	} else if r.ready[collector][device].IsZero() {
		r.ready[collector][device] = time.Now()
	}
}

// row records the packets of a device in an epoch, once for each epoch. A lost epoch has no count.
func (r *records) row(device, of, count string) {
	epoch, err1 := strconv.ParseUint(of, 10, 64)
	packets, err2 := strconv.ParseUint(count, 10, 64)
	if err1 != nil || err2 != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rows := r.rows[device]
	known := slices.ContainsFunc(rows[max(0, len(rows)-16):], func(x row) bool { return x.epoch == epoch })
	if packets != r.packets && len(rows) > 0 { // traffic begins after the first epochs
		r.wrong = append(r.wrong, wrongRow{epoch, fmt.Sprintf("%s, epoch %d: %d packets", device, epoch, packets)})
	}
	if !known && packets > 0 {
		r.rows[device] = append(rows, row{epoch, packets, time.Now()})
	}
}

// drop drops the state of a collector that was killed.
func (r *records) drop(collector string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ready, collector)
}

// owners returns, for each switch with exactly one ready session, the collector that has the
// session.
func (r *records) owners() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, count := map[string]string{}, map[string]int{}
	for collector, devices := range r.ready {
		for d := range devices {
			out[d] = collector
			count[d]++
		}
	}
	for d, n := range count {
		if n > 1 {
			delete(out, d)
		}
	}
	return out
}

// ownedBy lists the switches of a collector.
func (r *records) ownedBy(collector string) (devices []string) {
	for d, owner := range r.owners() {
		if owner == collector {
			devices = append(devices, d)
		}
	}
	slices.Sort(devices)
	return devices
}

// ownedSince returns when the first session with a switch was ready after a time.
func (r *records) ownedSince(device string, after time.Time) (first time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, devices := range r.ready {
		if at := devices[device]; at.After(after) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// firstSince returns when the first row of a switch arrived whose epoch is number or later, and how
// many epochs have no row, counted from number - 2 to that epoch.
func (r *records) firstSince(device string, number uint64) (at time.Time, missing int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, seen := uint64(0), map[uint64]bool{}
	for _, x := range r.rows[device] {
		seen[x.epoch] = true
		if x.epoch >= number && (first == 0 || x.epoch < first) {
			first, at = x.epoch, x.at
		}
	}
	for e := number - 2; e < first; e++ {
		if !seen[e] {
			missing++
		}
	}
	return at, missing, first != 0
}

// count returns the number of rows from an epoch on.
func (r *records) count(number uint64) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rows := range r.rows {
		for _, x := range rows {
			if x.epoch >= number {
				n++
			}
		}
	}
	return n
}

// lostSince lists the epochs for which a switch or host has no row, from epoch number to the newest
// epoch of any row.
func (r *records) lostSince(number uint64) (lost []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	newest := uint64(0)
	for _, rows := range r.rows {
		newest = max(newest, rows[len(rows)-1].epoch)
	}
	for device, rows := range r.rows {
		for e := number; e < newest; e++ {
			if !slices.ContainsFunc(rows, func(x row) bool { return x.epoch == e }) {
				lost = append(lost, fmt.Sprintf("%s, epoch %d: no row", device, e))
			}
		}
	}
	slices.Sort(lost)
	return lost
}

// allMeasured reports whether count switches and hosts have a row that arrived after a time.
func (r *records) allMeasured(count int, since time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, rows := range r.rows {
		if rows[len(rows)-1].at.After(since) {
			n++
		}
	}
	return n == count
}

// longestGap returns the longest time without a row of a switch since a time.
func (r *records) longestGap(since time.Time) (longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rows := range r.rows {
		last := since
		for _, x := range rows {
			if x.at.After(since) {
				longest, last = max(longest, x.at.Sub(last)), x.at
			}
		}
		longest = max(longest, time.Since(last))
	}
	return longest
}

// sentLate records that a busy machine sent packets meant for one epoch in a later one.
func (r *records) sentLate(meant, sent uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := meant; e <= sent; e++ {
		r.late[e] = true
	}
}

// result returns the count of rows, the count of epochs whose packets were sent late, and those
// rows of the other epochs that have a wrong number of packets.
func (r *records) result() (rows, late int, wrong []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, all := range r.rows {
		rows += len(all)
	}
	for _, w := range r.wrong {
		if !r.late[w.epoch] {
			wrong = append(wrong, w.text)
		}
	}
	return rows, len(r.late), wrong
}

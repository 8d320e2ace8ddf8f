// SPDX-License-Identifier: Apache-2.0

// The gNMI client of a trial: single leaves, and a record of every epoch.

package faults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmi/value"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// dial connects to the collector's gNMI server.
func (t *trial) dial(creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(t.gnmi, grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// request is a Get request of one path.
func (t *trial) request(path string) *gpb.GetRequest {
	t.Helper()
	return &gpb.GetRequest{Path: []*gpb.Path{t.known(path)}, Encoding: gpb.Encoding_PROTO}
}

// get returns a leaf as text; empty if it has no value or the collector does not answer.
func (t *trial) get(path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.client, 5*time.Second)
	defer cancel()
	t.conn.ResetConnectBackoff()
	resp, err := gpb.NewGNMIClient(t.conn).Get(ctx, t.request(path))
	if err != nil || len(resp.GetNotification()) == 0 || len(resp.GetNotification()[0].GetUpdate()) == 0 {
		return ""
	}
	v, err := value.ToScalar(resp.GetNotification()[0].GetUpdate()[0].GetVal())
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return fmt.Sprint(v)
}

// number is get of a number; 0 without a value.
func (t *trial) number(path string) int {
	t.Helper()
	n, _ := strconv.Atoi(t.get(path))
	return n
}

func (t *trial) plugin(name, leaf string) string {
	return t.get("/collector/plugins/plugin[name=" + name + "]/state/" + leaf)
}

func (t *trial) output(name, leaf string) string {
	return t.get("/collector/outputs/output[name=" + name + "]/state/" + leaf)
}

func (t *trial) device(name, leaf string) string {
	return t.get("/collector/devices/device[node=" + name + "]/state/" + leaf)
}

// result is what a subscriber received about an epoch.
type result struct {
	at       time.Time // arrival of the epoch's last part
	status   string    // status of the epoch
	expected int       // number of devices that the epoch should have
	missing  string
	warnings string
	end      time.Time
	packets  map[string]uint64 // packets of each device with results
	state    map[string]string // status of the results of each device
	changes  map[string]bool   // devices whose changes since the epoch before are known
}

// recorder subscribes to paths and records the rows of each epoch.
type recorder struct {
	paths []*gpb.Path
	work  sync.WaitGroup

	mu     sync.Mutex
	rows   map[string]map[string]string // newest leaves, by row
	epochs map[uint64]*result
	newest uint64 // epoch with a status
}

// record starts a recorder. It connects again when the collector comes back.
func (t *trial) record(paths ...string) *recorder {
	t.Helper()
	r := &recorder{epochs: map[uint64]*result{}}
	for _, p := range paths {
		r.paths = append(r.paths, t.known(p))
	}
	ctx, cancel := context.WithCancel(t.client)
	r.work.Go(func() {
		for ctx.Err() == nil {
			r.subscribe(ctx, gpb.NewGNMIClient(t.conn))
			t.conn.ResetConnectBackoff()
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond): // the next attempt
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		r.work.Wait()
	})
	return r
}

func (r *recorder) subscribe(ctx context.Context, client gpb.GNMIClient) {
	stream, err := client.Subscribe(ctx, grpc.WaitForReady(true))
	if err != nil {
		return
	}
	list := &gpb.SubscriptionList{Encoding: gpb.Encoding_PROTO}
	for _, p := range r.paths {
		list.Subscription = append(list.Subscription, &gpb.Subscription{Path: p, Mode: gpb.SubscriptionMode_ON_CHANGE})
	}
	if stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}}) != nil {
		return
	}
	r.mu.Lock()
	r.rows = map[string]map[string]string{}
	r.mu.Unlock()
	for {
		m, err := stream.Recv()
		if err != nil {
			return
		}
		if n := m.GetUpdate(); n != nil {
			r.add(n)
		}
	}
}

// rowOf returns the row of a leaf, "epoch", "summary" or the value of a key, and the leaf's name.
func rowOf(prefix, path *gpb.Path) (key, leaf string) {
	elems := slices.Concat(prefix.GetElem(), path.GetElem())
	key = "epoch"
	if len(elems) > 1 && elems[1].GetName() == "summary" {
		key = "summary"
	}
	for _, e := range elems {
		if k := e.GetKey()["node"] + e.GetKey()["name"]; k != "" {
			key = k
		}
	}
	return key, elems[len(elems)-1].GetName()
}

// add takes over the leaves of a notification; those that did not change keep their values.
func (r *recorder) add(n *gpb.Notification) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := map[string]bool{}
	for _, p := range n.GetDelete() {
		key, leaf := rowOf(n.GetPrefix(), p)
		if delete(r.rows[key], leaf); leaf == "state" || leaf == "node-summary" {
			delete(r.rows, key)
		}
	}
	for _, u := range n.GetUpdate() {
		key, leaf := rowOf(n.GetPrefix(), u.GetPath())
		v, err := value.ToScalar(u.GetVal())
		if err != nil {
			continue
		}
		if r.rows[key] == nil {
			r.rows[key] = map[string]string{}
		}
		r.rows[key][leaf] = fmt.Sprint(v)
		changed[key] = true
	}
	for key := range changed {
		r.take(key, r.rows[key])
	}
}

// take records a row under its epoch, which is the row's own number or that of UnivMon's summary.
// The summary comes after the changed rows of its epoch.
func (r *recorder) take(key string, row map[string]string) {
	name := "last-epoch"
	if key == "epoch" {
		name = "number"
	} else if row["epoch"] != "" {
		name = "epoch"
	}
	epoch, err := strconv.ParseUint(row[name], 10, 64)
	switch {
	case err != nil:
		return
	case key == "summary":
		delete(row, name)
		for other, leaves := range r.rows {
			if other != "epoch" && other != "summary" {
				leaves[name] = fmt.Sprint(epoch)
				r.take(other, leaves)
				delete(leaves, name)
			}
		}
		return
	}
	e := r.epochs[epoch]
	if e == nil {
		e = &result{packets: map[string]uint64{}, state: map[string]string{}, changes: map[string]bool{}}
		r.epochs[epoch] = e
	}
	e.at = time.Now()
	if key == "epoch" {
		e.status, e.missing, e.warnings = row["status"], row["missing"], row["accuracy-warnings"]
		e.expected, _ = strconv.Atoi(row["devices-expected"])
		if end, err := strconv.ParseInt(row["end"], 10, 64); err == nil {
			e.end = time.Unix(0, end)
		}
		r.newest = max(r.newest, epoch)
		return
	}
	e.state[key], e.changes[key] = row["status"], row["changes"] != ""
	if row["status"] != "LOST" {
		if packets, err := strconv.ParseUint(row["packets"], 10, 64); err == nil {
			e.packets[key] = packets
		}
	}
}

// seen returns a copy of the record of an epoch, empty if there is none.
func (r *recorder) seen(epoch uint64) result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.epochs[epoch]; e != nil {
		c := *e
		c.packets, c.state, c.changes = maps.Clone(e.packets), maps.Clone(e.state), maps.Clone(e.changes)
		return c
	}
	return result{}
}

// last returns the newest epoch with a status.
func (r *recorder) last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// whole reports whether all devices, and the network, have results of a complete epoch.
func (e result) whole() bool {
	for _, d := range append([]string{"network"}, devices...) {
		if _, ok := e.packets[d]; !ok {
			return false
		}
	}
	return e.status == "COMPLETE" && e.expected == len(devices)
}

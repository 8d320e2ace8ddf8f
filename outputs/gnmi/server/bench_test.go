// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openconfig/gnmi/cache"
	"github.com/openconfig/gnmi/ctree"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	ocsub "github.com/openconfig/gnmi/subscribe"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang/table"
)

const benchRows = 1000

// BenchmarkDelivery measures subscribers over TCP on loopback, each with its own connection, to
// 1,000 leaves that all change in each round. Without a pace, rounds follow one another at once;
// paced, rounds come at a rate. It reports the updates that subscribers received (values reported
// as dropped do not count), and the time from a value's timestamp to its arrival. For comparison,
// openconfig/gnmi's server with its cache gets the same values and clients.
func BenchmarkDelivery(b *testing.B) {
	for _, impl := range []struct {
		name  string
		serve func(testing.TB) (string, func(round int))
	}{{"netsketch", serveOurs}, {"openconfig", serveOpenConfig}} {
		for _, rate := range []int{0, 1, 30} { // rounds per second
			for _, subscribers := range []int{1, 10, 50} {
				pace := "flat-out"
				if rate > 0 {
					pace = fmt.Sprintf("%d-per-s", rate*benchRows)
				}
				b.Run(fmt.Sprintf("%s/%s/subscribers=%d", impl.name, pace, subscribers), func(b *testing.B) {
					deliver(b, impl.serve, rate, subscribers)
				})
			}
		}
	}
}

func deliver(b *testing.B, serve func(testing.TB) (string, func(int)), rate, subscribers int) {
	addr, publish := serve(b)
	publish(0)
	var clients []*benchClient
	for range subscribers {
		clients = append(clients, newBenchClient(b, addr))
	}
	for _, c := range clients {
		<-c.synced
	}
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	n := 0
	b.ResetTimer()
	for b.Loop() {
		n++
		if rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(n) * time.Second / time.Duration(rate))))
		}
		publish(n)
	}
	for _, c := range clients {
		c.wait(uint64(n))
	}
	took := time.Since(start)
	b.StopTimer()
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	var got uint64
	var late []time.Duration
	for _, c := range clients {
		got += c.updates.Load() - benchRows
		c.mu.Lock()
		late = append(late, c.late...)
		c.mu.Unlock()
	}
	slices.Sort(late)
	b.ReportMetric(float64(got)/took.Seconds(), "updates/s")
	if len(late) > 0 {
		b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "p99-ms")
	}
	b.ReportMetric(float64(after.Sys)/(1<<20), "sys-MiB")
	b.ReportMetric(0, "ns/op")
}

// benchClient counts the updates of a subscriber. It parses the wire format, because clients share
// the machine with the server, and decoding to Go structs would take most of the time.
type benchClient struct {
	updates atomic.Uint64
	synced  chan struct{}

	mu   sync.Mutex
	cond *sync.Cond
	rows int    // rows that have had the newest value
	top  uint64 // the newest value
	done uint64 // the value that every row has reached
	late []time.Duration
}

// light is a codec that leaves received messages as bytes.
type light struct{}

type rawMessage struct{ b []byte }

func (light) Name() string { return "proto" }

func (light) Marshal(v any) (mem.BufferSlice, error) {
	b, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (light) Unmarshal(data mem.BufferSlice, v any) error {
	m := v.(*rawMessage)
	m.b = append(m.b[:0], data.MaterializeToBuffer(mem.DefaultBufferPool()).ReadOnlyData()...)
	return nil
}

// fields calls f with each field of an encoded message: v for bytes, n for a number.
func fields(b []byte, f func(num protowire.Number, v []byte, n uint64)) {
	for len(b) > 0 {
		num, typ, l := protowire.ConsumeTag(b)
		if l < 0 {
			return
		}
		b = b[l:]
		switch typ {
		case protowire.BytesType:
			v, l := protowire.ConsumeBytes(b)
			f(num, v, 0)
			b = b[l:]
		case protowire.VarintType:
			n, l := protowire.ConsumeVarint(b)
			f(num, nil, n)
			b = b[l:]
		default:
			b = b[protowire.ConsumeFieldValue(num, typ, b):]
		}
	}
}

func newBenchClient(b *testing.B, addr string) *benchClient {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := conn.NewStream(ctx, &gpb.GNMI_ServiceDesc.Streams[0], gpb.GNMI_Subscribe_FullMethodName,
		grpc.ForceCodecV2(light{}))
	if err != nil {
		b.Fatal(err)
	}
	// In openconfig/gnmi, a key that is left out matches no entry.
	req := subscriptions(gpb.SubscriptionList_STREAM,
		"/univmon/heavy-hitters/heavy-hitter[dimension=*][flow=*][node=*]/state/packets")
	req.GetSubscribe().Prefix = &gpb.Path{Target: "netsketch"}
	if err := stream.SendMsg(req); err != nil {
		b.Fatal(err)
	}
	c := &benchClient{synced: make(chan struct{})}
	c.cond = sync.NewCond(&c.mu)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.read(stream)
	}()
	b.Cleanup(func() {
		cancel()
		<-ended
		conn.Close()
	})
	return c
}

func (c *benchClient) read(stream grpc.ClientStream) {
	live := false
	seen := 0
	var m rawMessage
	for stream.RecvMsg(&m) == nil {
		now := time.Now().UnixNano()
		c.mu.Lock()
		fields(m.b, func(num protowire.Number, note []byte, n uint64) {
			if num != responseUpdate {
				if !live {
					live = true
					close(c.synced)
				}
				return
			}
			var ts int64
			fields(note, func(num protowire.Number, v []byte, n uint64) {
				if num == noteTimestamp {
					ts = int64(n)
				}
				if num != noteUpdate {
					return
				}
				c.updates.Add(1)
				fields(v, func(num protowire.Number, v []byte, _ uint64) {
					if num == updateVal {
						fields(v, func(_ protowire.Number, _ []byte, n uint64) { c.value(n) })
					}
				})
				if seen++; live && seen%16 == 0 && len(c.late) < 1<<17 {
					c.late = append(c.late, time.Duration(now-ts))
				}
			})
		})
		c.mu.Unlock()
	}
}

func (c *benchClient) value(v uint64) {
	if v > c.top {
		c.top, c.rows = v, 0
	}
	if v == c.top {
		if c.rows++; c.rows == benchRows {
			c.done = v
			c.cond.Broadcast()
		}
	}
}

// wait waits until every row has had the value.
func (c *benchClient) wait(v uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.done != v {
		c.cond.Wait()
	}
}

func listenTCP(tb testing.TB, register func(*grpc.Server)) string {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	rpc := grpc.NewServer()
	register(rpc)
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(lis) }()
	tb.Cleanup(func() {
		rpc.Stop()
		<-served
	})
	return lis.Addr().String()
}

func serveOurs(tb testing.TB) (string, func(int)) {
	f := newFixture(tb)
	addr := listenTCP(tb, func(s *grpc.Server) { f.server.Register(s) })
	device, dimension, flow := make([]string, benchRows), make([]string, benchRows), make([]string, benchRows)
	for i := range flow {
		device[i], dimension[i], flow[i] = "s1", "src", benchFlow(i)
	}
	keys := []table.Column{table.Strings("node", device), table.Strings("dimension", dimension),
		table.Strings("flow", flow)}
	return addr, func(round int) {
		v := make([]uint64, benchRows)
		for i := range v {
			v[i] = uint64(round)
		}
		t := &table.Table{List: "/netsketch-univmon:univmon/heavy-hitters/heavy-hitter", Keys: keys,
			Values: []table.Column{table.Uint64s("state/packets", v)}}
		err := f.store.Publish(store.Batch{Time: time.Now(), Tables: []store.Publication{{Table: t, Replace: true}}})
		if err != nil {
			tb.Fatal(err)
		}
	}
}

func benchFlow(i int) string { return fmt.Sprintf("10.0.%d.%d", i/256, i%256) }

func serveOpenConfig(tb testing.TB) (string, func(int)) {
	c := cache.New([]string{"netsketch"})
	s, err := ocsub.NewServer(c)
	if err != nil {
		tb.Fatal(err)
	}
	c.SetClient(func(l *ctree.Leaf) { s.Update(l) })
	c.GetTarget("netsketch").Sync()
	addr := listenTCP(tb, func(r *grpc.Server) { gpb.RegisterGNMIServer(r, s) })
	paths := make([]*gpb.Path, benchRows)
	for i := range paths {
		paths[i] = path(fmt.Sprintf("/univmon/heavy-hitters/heavy-hitter[dimension=src][flow=%s][node=s1]/state/packets",
			benchFlow(i)))
	}
	return addr, func(round int) {
		for i := range paths {
			err := c.GnmiUpdate(&gpb.Notification{
				Timestamp: time.Now().UnixNano(), Prefix: &gpb.Path{Target: "netsketch"},
				Update: []*gpb.Update{{Path: paths[i],
					Val: &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: uint64(round)}}}},
			})
			if err != nil {
				tb.Fatal(err)
			}
		}
	}
}

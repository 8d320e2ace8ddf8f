// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/lightguardian"
	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/sumax"
	"github.com/netsketch/netsketch/yang"
)

const (
	columns = 64
	seed    = 0x2c9277b5
)

func settings() *wire.Settings {
	s := &wire.Settings{Kept: 1 << 20, Flows: 5000, Interval: 2, Sketch: &wire.Sketch{Rows: 3,
		Delays: []uint32{50, 100, 200}, Sizes: true, Gaps: true, Unit: 3}}
	for id, name := range []string{"s1", "s2"} {
		s.Devices = append(s.Devices, wire.Device{ID: uint16(id), Name: name, Seed: seed, Columns: columns, Words: 21})
	}
	return s
}

// arriving returns a UDP packet of a flow, with the sketchlet of a column or without.
func arriving(port uint16, sketchlet []byte) *packet.Frame {
	ip := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
	if sketchlet != nil {
		ip[6] |= 0x80
	}
	udp := []byte{byte(port >> 8), byte(port), 0, 80, 0, byte(8 + len(sketchlet)), 0, 0}
	ip[3] = byte(28 + len(sketchlet))
	return packet.NewFrame(slices.Concat(make([]byte, 12), []byte{8, 0}, ip, udp, sketchlet))
}

func keyOf(t testing.TB, port uint16) flow.Key {
	t.Helper()
	k, err := flow.New(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), 17, port, 80)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// start returns a server whose host received the first columns of the sketch of s1, and one of
// s2's of an older interval, in epochs 11 and 12, which are an interval.
func start(t *testing.T, received int) (address string) {
	t.Helper()
	path := agent.NewRolePath(func(c *epoch.Clock) role.Role { return lightguardian.New(c, still) })
	path.Advance(10)
	data, err := settings().Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.Apply(data); err != nil {
		t.Fatal(err)
	}
	path.Advance(11)
	sketch, err := sumax.New[family.P4](sumax.Config{Rows: 3, Width: columns, Ranges: []uint32{50, 100, 200},
		Intervals: true, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	key := keyOf(t, 7)
	for i := range uint32(10) {
		sketch.Record(key.AppendBinary(nil), sumax.Packet{Delay: 60 + i*20, At: 1 + i*100})
	}
	var cells []uint32
	for c := range received {
		if c == received/2 {
			path.Advance(12)
		}
		if cells, err = sketch.Column(cells[:0], c); err != nil {
			t.Fatal(err)
		}
		path.In([]*packet.Frame{arriving(7, wire.Append(nil, 0, uint16(c), 5, cells))})
	}
	path.In([]*packet.Frame{arriving(7, wire.Append(nil, 0, 9, 4, make([]uint32, 21))),
		arriving(9, wire.Append(nil, 1, 9, 4, make([]uint32, 21)))})
	path.Advance(13)
	address = Scheme + filepath.Join(t.TempDir(), "socket")
	s, err := Listen(Config{Address: address, Host: "h1"}, path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(strings.TrimPrefix(address, Scheme)); err == nil {
			t.Error("the socket remains")
		}
	})
	return address
}

// get returns the leaves of a path, as path=value.
func get(t *testing.T, address, text string) map[string]string {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	path, err := yang.ParsePath(text)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := gpb.NewGNMIClient(conn).Get(ctx, &gpb.GetRequest{Path: []*gpb.Path{path}, Encoding: gpb.Encoding_PROTO})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	out := map[string]string{}
	for _, n := range r.GetNotification() {
		for _, u := range n.GetUpdate() {
			elems := append(slices.Clone(n.GetPrefix().GetElem()), u.GetPath().GetElem()...)
			out[yang.PathString(elems)] = fmt.Sprint(u.GetVal())
		}
	}
	return out
}

// TestLocal: a program on the host reads the flows of the host, and what arrived of the sketches.
func TestLocal(t *testing.T) {
	address := start(t, columns)
	key := keyOf(t, 7)
	all := get(t, address, "/host")
	hop := fmt.Sprintf("/host/hops/hop[flow=%s][node=s1]/state/", key)
	for leaf, want := range map[string]string{
		"/host/summary/state/node": `string_val:"h1"`, "/host/summary/state/epoch": "uint_val:12",
		"/host/summary/state/sketchlets": "uint_val:66", "/host/summary/state/flows": "uint_val:2",
		"/host/summary/state/omitted-flows":                                  "uint_val:0",
		fmt.Sprintf("/host/flows/flow[flow=%s]/state/received-packets", key): "uint_val:65",
		fmt.Sprintf("/host/flows/flow[flow=%s]/state/switches", key):         `string_val:"s1"`,
		hop + "packets": "uint_val:10", hop + "carrier": "bool_val:true", hop + "coverage": "double_val:1",
		hop + "gap": "uint_val:800000", hop + "last-arrival": "uint_val:7200000",
		fmt.Sprintf("/host/delays/delay[flow=%s][lower=50000][node=s1]/state/packets", key):  "uint_val:2",
		fmt.Sprintf("/host/delays/delay[flow=%s][lower=100000][node=s1]/state/upper", key):   "uint_val:200000",
		fmt.Sprintf("/host/delays/delay[flow=%s][lower=200000][node=s1]/state/packets", key): "uint_val:3",
		"/host/switches/switch[node=s1]/state/received-columns":                              "uint_val:64",
		"/host/switches/switch[node=s1]/state/old-sketchlets":                                "uint_val:1",
		"/host/switches/switch[node=s1]/state/interval":                                      "uint_val:5",
		"/host/switches/switch[node=s2]/state/coverage":                                      "double_val:0.015625",
	} {
		if all[leaf] != want {
			t.Errorf("%s: %s, want %s", leaf, all[leaf], want)
		}
	}
	if t.Failed() {
		for p, v := range all {
			t.Logf("%s = %s", p, v)
		}
	}
}

// TestPartial: a flow without a column that arrived has no hop.
func TestPartial(t *testing.T) {
	address := start(t, 0)
	got := get(t, address, "/host/switches")
	if got["/host/switches/switch[node=s1]/state/received-columns"] != "uint_val:1" {
		t.Errorf("%v", got)
	}
	all := get(t, address, "/host")
	for p := range all {
		if strings.HasPrefix(p, "/host/hops/") && strings.HasSuffix(p, "/packets") && all[p] != "uint_val:0" {
			t.Errorf("%s = %s", p, all[p])
		}
	}
}

// TestSocket: a socket in use is refused, a leftover socket is replaced, another file is kept.
func TestSocket(t *testing.T) {
	path := agent.NewRolePath(func(c *epoch.Clock) role.Role { return lightguardian.New(c, still) })
	address := start(t, 1)
	if _, err := Listen(Config{Address: address}, path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a socket in use: %v", err)
	}
	if _, err := Listen(Config{Address: "127.0.0.1:1"}, path); err == nil || !strings.Contains(err.Error(), Scheme) {
		t.Errorf("another address: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(Config{Address: Scheme + file}, path); err == nil {
		t.Error("a file that is no socket was replaced")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "kept" {
		t.Errorf("%q, %v", b, err)
	}
}

// FuzzAnalyze: any report of a host gives rows, and no result is computed from cells of other
// columns or devices.
func FuzzAnalyze(f *testing.F) {
	s := settings()
	f.Add(wire.Append(wire.Append(nil, 0, 3, 1, make([]uint32, 21)), 1, 63, 255, make([]uint32, 21)), uint16(7))
	f.Add(wire.Append(nil, 0, 64, 1, make([]uint32, 21)), uint16(7))
	f.Add(wire.Append(nil, 0, 1, 1, make([]uint32, 20)), uint16(7))
	f.Fuzz(func(t *testing.T, sketchlets []byte, port uint16) {
		r, err := wire.ParseReport(append((&wire.Report{Epoch: 1}).Append(nil), sketchlets...))
		if err != nil {
			return
		}
		fits := true
		for k := range r.All {
			if k.Device() < 2 && (k.Words() != 21 || k.Column() >= columns) {
				fits = false
			}
		}
		r.Flows = []wire.Flow{{Key: keyOf(t, port), Received: 1}}
		if _, err := analyze("h1", s, r); (err == nil) != fits {
			t.Errorf("%v", err)
		}
	})
}

func still() time.Duration { return 1 }

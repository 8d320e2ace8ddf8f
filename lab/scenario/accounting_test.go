// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/internal/pcapfile"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/traffic"
)

// accounted checks that every packet of a run is in the summary once.
func accounted(tb testing.TB, r *scenario.Report) {
	tb.Helper()
	if !r.Network.Balanced() {
		tb.Errorf("packets are not accounted for: %+v", r.Network)
	}
}

// frame is a UDP packet of 100 bytes.
func frame(source, destination string, port uint16) []byte {
	return traffic.BuildFrame(traffic.FrameSpec{Src: netip.MustParseAddr(source), Dst: netip.MustParseAddr(destination),
		Proto: 17, SrcPort: port, DstPort: 53, Length: 100})
}

// capture writes frames, one a millisecond, to a capture file.
func capture(t *testing.T, frames [][]byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "frames.pcap")
	w, err := pcapfile.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		if err := w.Write(pcapfile.Packet{Date: time.Unix(1_700_000_000, int64(i)*1e6), Frame: f}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Packets that switches drop are counted by reason: hop limits, headers that are cut off, addresses
// without a route, links that are down.
func TestDropsAreCountedByReason(t *testing.T) {
	ttl1 := func(b []byte) []byte {
		b[22] = 1
		b[24], b[25] = 0, 0
		sum := uint32(0)
		for i := 14; i < 34; i += 2 {
			sum += uint32(b[i])<<8 | uint32(b[i+1])
		}
		sum = sum>>16 + sum&0xffff
		sum += sum >> 16
		b[24], b[25] = byte(^sum>>8), byte(^sum)
		return b
	}
	const a, b, nowhere = "10.1.0.1", "10.2.0.1", "239.1.1.1"
	frames := [][]byte{}
	for i := range 20 {
		frames = append(frames, frame(a, b, uint16(i)), frame(b, a, uint16(i)))
	}
	for i := range 7 {
		frames = append(frames, ttl1(frame(a, b, uint16(i))), frame(a, nowhere, uint16(i)), frame(a, b, uint16(i))[:20])
	}
	lldp := frame(a, b, 0)
	copy(lldp[12:], []byte{0x88, 0xcc})
	frames = append(frames, lldp)
	path := capture(t, frames)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[24+12] = 99 // the first packet had one byte less than its record
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s := small(t, "")
	s.Topology = scenario.Topology{Kind: "leaf-spine", Leaves: 2, Spines: 1, HostsPerLeaf: 1, Latency: time.Millisecond}
	s.UseTrace(path)
	if s.Epochs = 0; s.PlayTraceOnce() != nil || s.Epochs != 2 || s.Traffic[0].Repeat {
		t.Fatalf("%d epochs, repeated: %v", s.Epochs, s.Traffic[0].Repeat)
	}
	r := play(t, s)
	const dropped = "dropped by the ingress pipeline"
	if n := r.Network; n.Sent != 62 || n.Received != 40 || n.Lost != 0 || n.Dropped[dropped] != 21 ||
		n.Dropped["taken by the switch itself (LLDP)"] != 1 || len(n.Dropped) != 2 || n.InFlight != 0 {
		t.Errorf("%+v; 40 packets can arrive, 21 cannot, and one is LLDP", n)
	}

	played := int64(62)
	want := []scenario.TraceStats{{File: path, Packets: 62, LongerRecords: 1, Played: &played,
		Refused: map[string]int{"IP header cut or of another version": 7, "not IPv4 or IPv6 (EtherType 0x88cc)": 1}}}
	if diff := cmp.Diff(want, r.Traces); diff != "" {
		t.Errorf("traces (-want +got):\n%s", diff)
	}

	// Every packet is also accounted for with a link that is down in the first epoch, and with
	// packets on the way at the end.
	s.Faults = []scenario.Fault{{Link: "leaf1-spine1", Down: true, Until: 20 * time.Millisecond}}
	s.Traffic[0].Repeat, s.Topology.Latency = true, 100*time.Millisecond
	r = play(t, s)
	n := r.Network
	if n.Received == 0 || n.Dropped["port missing or down"] == 0 || n.Dropped[dropped] == 0 || n.InFlight == 0 {
		t.Errorf("%+v; expected packets received, dropped at ports that are down and by the pipeline, and on the way",
			n)
	}
	text, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"packets_sent", "packets_received", "packets_lost_on_links",
		"packets_dropped_by_switches", "packets_in_flight"} {
		if !strings.Contains(string(text), `"`+name+`":`) {
			t.Errorf("no %s in %s", name, text)
		}
	}
}

// Links that lose packets at random, of some flows only, or die.
func TestLossesAreAccountedFor(t *testing.T) {
	for name, fault := range map[string]scenario.Fault{
		"random loss":  {Link: "leaf1-spine1", Loss: 0.2},
		"grey failure": {Link: "leaf1-spine1", Loss: 1, Flows: 0.2},
		"dead link":    {Link: "leaf1-spine1", Down: true, From: 300 * time.Millisecond},
		"dead switch":  {Switch: "spine2", From: 300 * time.Millisecond},
	} {
		s := small(t, "")
		s.Epochs, s.Faults = 1, []scenario.Fault{fault}
		n := play(t, s).Network // play also checks the sums
		gone := n.Lost
		for _, reason := range slices.Collect(maps.Values(n.Dropped)) {
			gone += reason
		}
		if gone == 0 || n.Received == 0 || n.Sent < n.Received+gone {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

// A port that receives more than it can send fills its queue: it sends at its rate, the packets
// that find the queue full are dropped and counted, and the packets that wait at the end count as
// on the way.
func TestQueuesAreAccountedFor(t *testing.T) {
	const rate, depth, epochs = 2000, 20, 2
	s := small(t, "")
	s.Epochs, s.Topology.QueueRate, s.Topology.QueueDepth = epochs, rate, depth
	s.Traffic[0].Senders, s.Traffic[0].Receivers = []string{"h2", "h3", "h4"}, []string{"h1"}
	n := play(t, s).Network // play also checks the sums
	const full = "egress queue full"
	sent := uint64(rate * epochs * s.Epoch / time.Second)
	if n.Received > sent*51/50 || n.Received < sent*49/50 || n.InFlight < depth/2 || n.Dropped[full] < n.Sent*2/5 {
		t.Errorf("%+v; a port sends about %d packets in the time, %d wait at most", n, sent, depth)
	}
	s.Traffic[0].Until = s.Epoch
	if n = play(t, s).Network; n.Received <= sent/2 || n.InFlight > 0 || n.Dropped[full] == 0 {
		t.Errorf("%+v; the queue has emptied after the traffic", n)
	}
	s.Topology.QueueRate = 0
	if _, err := scenario.Open(t.Context(), s, scenario.Options{Compiler: &compiler}); err == nil ||
		!strings.Contains(err.Error(), "queue-rate") {
		t.Errorf("a depth without a rate: %v", err)
	}
}

// TestTraceWithOddDates: a packet dated hours ahead does not hold back those behind it; a run that
// ends before the file fails, and says how many packets it played.
func TestTraceWithOddDates(t *testing.T) {
	frame := make([]byte, 60)
	frame[12], frame[14], frame[17], frame[22], frame[23] = 8, 0x45, 46, 64, 17
	copy(frame[26:], []byte{10, 1, 0, 1, 10, 2, 0, 1})
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(frame[i])<<8 | uint32(frame[i+1])
	}
	sum = sum>>16 + sum&0xffff
	frame[24], frame[25] = byte(^sum>>8), byte(^sum)
	write := func(dates ...time.Duration) string {
		path := filepath.Join(t.TempDir(), "x.pcap")
		w, err := pcapfile.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range dates {
			if err := w.Write(pcapfile.Packet{Date: time.Unix(1_700_000_000, 0).Add(at), Frame: frame}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct {
		name          string
		path          string
		ok            bool
		steps, played int64
	}{
		{"hours ahead", write(0, 65536*time.Second, time.Millisecond, 2*time.Millisecond), true, 2, 4},
		{"longer than the run", write(0, time.Millisecond, 50*time.Second), false, 0, 2},
	} {
		s := small(t, "")
		s.UseTrace(tc.path)
		s.Traffic[0].Repeat, s.Epochs = false, 2
		r := play(t, s)
		if len(r.Traces) != 1 || int64(r.Traces[0].TimeSteps) != tc.steps || *r.Traces[0].Played != tc.played ||
			r.OK != tc.ok {
			t.Errorf("%s: %+v, %d played, ok %v", tc.name, r.Traces, *r.Traces[0].Played, r.OK)
		}
	}
	// A file keeps its pause if another file has packets in the pause.
	var dates []time.Duration
	for at := time.Duration(0); at < 100*time.Second; at += 10 * time.Second {
		dates = append(dates, at)
	}
	s := small(t, "")
	s.UseTrace(write(0, 90*time.Second))
	s.Traffic[0].Repeat, s.Epochs = false, 2
	s.Traffic = append(s.Traffic, scenario.Component{Trace: write(dates...)})
	if r := play(t, s); len(r.Traces) != 2 || r.Traces[0].Pauses != 1 || *r.Traces[0].Played != 1 || r.OK {
		t.Errorf("a pause beside another file: %+v", r.Traces)
	}
	// A packet longer than a switch accepts makes the run fail, too.
	short := frame
	frame = append(slices.Clone(frame), make([]byte, 1<<18)...)
	long := write(0)
	frame = short
	f, err := os.OpenFile(long, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{0, 0, 8, 0}, 16) // the snapshot length
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	s = small(t, "")
	s.UseTrace(long)
	s.Traffic[0].Repeat, s.Epochs = false, 2
	want := scenario.Verdict{Bound: "packets longer than 256 KiB", Value: 1}
	if r := play(t, s); r.OK || !slices.Contains(r.Expected, want) {
		t.Errorf("a packet above 256 KiB: ok %v, %+v, %+v", r.OK, r.Expected, r.Network)
	}
	frame[24], frame[25] = 0, 0
	s = small(t, "")
	s.UseTrace(write(0, 1, 2))
	_, err = scenario.Open(t.Context(), s, scenario.Options{Virtual: true, PluginDir: plugins, Listen: "127.0.0.1:0"})
	if err == nil || !strings.Contains(err.Error(),
		"in its 3 packets: 3: IPv4 header checksum zero") {
		t.Errorf("offloaded checksums: %v", err)
	}
}

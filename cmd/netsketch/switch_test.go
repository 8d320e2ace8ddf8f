// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/internal/pcapfile"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/softswitch/dataplane"
)

// plugins is the directory of the plugin binaries.
var plugins string

func TestMain(m *testing.M) {
	if file := os.Getenv(collectorFile); file != "" {
		os.Args = []string{"netsketch", "collector", "--config", file}
		main()
	}
	testkit.MainWithPlugins(m, &plugins, "univmon", "chamelemon")
}

// running is a running switch command.
type running struct {
	t    *testing.T
	addr string
	stop func() error // ends the command and returns its error
	log  *logBuffer
	done chan error
}

// logBuffer holds a command's log and can wait for a line.
type logBuffer struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	wake chan struct{}
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// startSwitch runs "netsketch switch" with arguments on a free address.
func startSwitch(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, log: &logBuffer{wake: make(chan struct{}, 1)}, done: make(chan error, 1)}
	cmd := root()
	cmd.SetArgs(append([]string{"switch", "--listen", "127.0.0.1:0"}, args...))
	cmd.SetErr(r.log)
	go func() { r.done <- cmd.ExecuteContext(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-r.done
	})
	r.stop = stop
	t.Cleanup(func() { _ = stop() }) // tests that need the error call stop themselves
	r.addr = r.wait(`p4runtime=(\S+)`)
	return r
}

// wait waits for a line in the log and returns its first group.
func (r *running) wait(pattern string) string {
	r.t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.After(2 * time.Minute); ; {
		if m := re.FindStringSubmatch(r.log.String()); m != nil {
			return m[len(m)-1]
		}
		select {
		case <-r.log.wake:
		case err := <-r.done:
			r.done <- err
			r.t.Fatalf("the switch ended: %v\n%s", err, r.log)
		case <-deadline:
			r.t.Fatalf("no %q in the log:\n%s", pattern, r.log)
		}
	}
}

// udp writes a file with n packets to 10.0.0.2, a millisecond apart.
func udp(t *testing.T, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.pcap.gz")
	w, err := pcapfile.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		ip := &layers.IPv4{
			Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP,
			SrcIP: netip.MustParseAddr("10.0.0.1").AsSlice(), DstIP: netip.MustParseAddr("10.0.0.2").AsSlice(),
		}
		u := &layers.UDP{SrcPort: layers.UDPPort(i), DstPort: 9}
		if err := u.SetNetworkLayerForChecksum(ip); err != nil {
			t.Fatal(err)
		}
		b := gopacket.NewSerializeBuffer()
		eth := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 9}, DstMAC: []byte{2, 0, 0, 0, 0, 8},
			EthernetType: layers.EthernetTypeIPv4}
		if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth,
			ip, u, gopacket.Payload("hello")); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(pcapfile.Packet{Date: time.Unix(1000, int64(i)*1e6), Frame: b.Bytes()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func count(t *testing.T, path string) (n int) {
	t.Helper()
	r, err := pcapfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

// A controller pushes a pipeline and a route. The packets of a capture file leave into another
// file, and gNMI serves the counters.
func TestSwitchWithAController(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.pcap")
	r := startSwitch(t, "--device-id", "7", "--port", "1="+udp(t, 50), "--port", "2=,"+out, "--play-after", "1s")

	p, err := compiled.Load("forwarding")
	if err != nil {
		t.Fatal(err)
	}
	c, err := p4rt.Dial(t.Context(), p4rt.Config{
		Target: r.addr, DeviceID: 7, Program: &p4rt.Program{Name: p.Name, DeviceConfig: p.JSON, P4Info: p.P4Info},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	route := p4rt.Entry{
		Table: "ipv4_lpm", Match: []p4rt.Match{p4rt.Prefix("hdr.ipv4.dst", netip.MustParsePrefix("10.0.0.0/8"))},
		Action: "ingress.forwarding.forward",
		Params: []p4rt.Param{p4rt.Uint("port", 2), p4rt.Bytes("src_mac", []byte{2, 0, 0, 0, 0, 1}),
			p4rt.Bytes("dst_mac", []byte{2, 0, 0, 0, 0, 2})},
	}
	if err := c.Reconcile(t.Context(), p4rt.Desired{Entries: []p4rt.Entry{route}}); err != nil {
		t.Fatal(err)
	}
	if got := r.wait(`capture files played.* (read=\d+ played=\d+)`); got != "read=50 played=50" {
		t.Error(got)
	}

	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	counter := &gpb.Path{Elem: []*gpb.PathElem{
		{Name: "interfaces"}, {Name: "interface", Key: map[string]string{"name": "port 2"}}, {Name: "state"},
		{Name: "counters"}, {Name: "out-octets"},
	}}
	answer, err := gpb.NewGNMIClient(conn).Get(t.Context(),
		&gpb.GetRequest{Path: []*gpb.Path{counter}, Encoding: gpb.Encoding_JSON_IETF})
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.GetNotification()[0].GetUpdate()[0].GetVal().GetJsonIetfVal(); string(got) != `"3000"` {
		t.Errorf("gNMI says that %s bytes left by port 2, want 50 packets of 60", got)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if n := count(t, out); n != 50 {
		t.Errorf("%d packets left into the file", n)
	}
}

func TestSwitchGRPCPorts(t *testing.T) {
	r := startSwitch(t, "--program", "forwarding", "--grpc-ports", "4", "--port",
		"2=,"+filepath.Join(t.TempDir(), "out.pcap"))
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c, err := dataplane.Open(t.Context(), conn, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetPortUp(t.Context(), 3, false); err != nil {
		t.Error(err)
	}
	if err := c.SetPortUp(t.Context(), 4, false); err == nil {
		t.Error("port 4 is there")
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	for range c.Packets() {
		t.Error("a packet came from nowhere")
	}
}

// With --once, packets that were not played are no success: the port takes none above 256 KiB, and
// a switch without a program plays none.
func TestSwitchOnceWithoutAllPackets(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in.pcap")
	w, err := pcapfile.Create(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{60, 65549, 1<<18 + 1, 60} {
		if err := w.Write(pcapfile.Packet{Date: time.Unix(1000, 0), Frame: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(in)
	if err != nil {
		t.Fatal(err)
	}
	data[18] = 8 // the longest packet, 512 KiB, is in bytes 16 to 19
	if err := os.WriteFile(in, data, 0o600); err != nil {
		t.Fatal(err)
	}
	r := startSwitch(t, "--program", "forwarding", "--port", "1="+in, "--once")
	err = <-r.done
	r.done <- nil
	if err == nil || !strings.HasPrefix(err.Error(), "1 of 4 packets were not played") {
		t.Error(err)
	}
	if got := r.wait(`capture files played.* (read=\d+ played=\d+)`); got != "read=4 played=3" {
		t.Error(got)
	}

	r = startSwitch(t, "--port", "1="+in, "--once")
	if err := r.stop(); err == nil || !strings.Contains(err.Error(), "stopped after 0 packets") {
		t.Error(err)
	}
}

func TestSwitchOnceEndsByItself(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.pcap.gz")
	r := startSwitch(t, "--program", "forwarding", "--port", "1="+udp(t, 5)+","+out, "--once")
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	r.done <- nil
	if n := count(t, out); n != 0 {
		t.Errorf("%d packets left, without a route", n)
	}
}

// Packets wait at a port that has a rate, by the time of the files.
func TestSwitchQueues(t *testing.T) {
	program, err := compiled.Load("forwarding")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		flags string
		dates []int // times at which packets leave, in milliseconds; one arrives every millisecond
	}{
		{"", []int{0, 1, 2, 3, 4}}, {"--queue all=1000", []int{1, 2, 3, 4, 5}},
		{"--queue all=1 --queue 2=100", []int{10, 20, 30, 40, 50}}, {"--queue 2=100/2", []int{10, 20}},
		{"--queue 2=250,100", []int{4, 8, 12, 16, 20}},
	} {
		out := filepath.Join(t.TempDir(), "out.pcap.gz")
		r := startSwitch(t, append([]string{"--port", "1=" + udp(t, 5), "--port", "2=," + out, "--once", "--play-after",
			"1s"}, strings.Fields(tc.flags)...)...)
		route := p4rt.Entry{
			Table: "ipv4_lpm", Action: "ingress.forwarding.forward",
			Match: []p4rt.Match{p4rt.Prefix("hdr.ipv4.dst", netip.MustParsePrefix("10.0.0.0/8"))},
			Params: []p4rt.Param{p4rt.Uint("port", 2), p4rt.Bytes("src_mac", []byte{2, 0, 0, 0, 1, 1}),
				p4rt.Bytes("dst_mac", []byte{2, 0, 0, 0, 1, 2})},
		}
		c, err := p4rt.Dial(t.Context(), p4rt.Config{
			Target: r.addr, DeviceID: 1, Program: &p4rt.Program{Name: "forwarding", DeviceConfig: program.JSON,
				P4Info: program.P4Info},
			Reconcile: func(ctx context.Context, c *p4rt.Client) error {
				return c.Reconcile(ctx, p4rt.Desired{Entries: []p4rt.Entry{route}})
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-r.done; err != nil {
			t.Error(err)
		}
		r.done <- nil
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		file, err := pcapfile.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		var dates []int
		for {
			p, err := file.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			dates = append(dates, int(p.Date.UnixMilli()))
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
		if !slices.Equal(dates, tc.dates) {
			t.Errorf("%q: packets left at %v ms, want %v", tc.flags, dates, tc.dates)
		}
	}
}

func TestSwitchRefuses(t *testing.T) {
	dir := t.TempDir()
	in, notJSON, cut := udp(t, 3), filepath.Join(dir, "not.json"), filepath.Join(dir, "cut.pcap.gz")
	link := filepath.Join(dir, "link.pcap.gz")
	if err := os.Symlink(in, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(notJSON, []byte("P4"), 0o600); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cut, data[:len(data)-12], 0o600); err != nil {
		t.Fatal(err)
	}
	taken := startSwitch(t)
	for _, tc := range []struct{ args, wants string }{
		{"--port 1", `--port "1": expected NUMBER=`},
		{"--port 1=@", "or NUMBER=@INTERFACE"},
		{"--port 1=@missing0", "--port 1=@missing0: interface missing0: no such device"},
		{"--port one=" + in, `--port "one=`},
		{"--port 1=" + filepath.Join(dir, "none.pcap"), "none.pcap: no such file"},
		{"--port 1=" + in + " --port 1=" + in, "port 1: already exists"},
		{"--port 1=@lo --port 2=@lo", `--port "2=@lo": port 1 has lo already`},
		{"--port 1=a,out --port 2=b,out", `--port "2=b,out": port 1 has out already`},
		{"--port 1=" + in + "," + in, "would replace " + in},
		{"--port 1=" + in + " --port 2=," + link, "would replace " + in},
		{"--port 1=,a/../out --port 2=,out", "port 1 has out already"},
		{"--port 255=" + in, "not the CPU port"},
		{"--program forwarding --json " + notJSON, "exclude each other"},
		{"--program missing", "forwarding, lightguardian, omnimon, sketchint, sketchint-edge, univmon"},
		{"--device-id 0", "P4Runtime reserves 0"},
		{"--parallel -5", "--parallel -5: expected 0 or more"},
		{"--json " + notJSON, notJSON},
		{"--json " + filepath.Join(dir, "none.json"), "none.json: no such file"},
		{"--listen " + taken.addr, "choose another address with --listen"},
		{"--program forwarding --once --port 1=" + cut, cut + ": bad capture file: truncated after packet "},
		{"--queue 1", "expected NUMBER=RATE"},
		{"--queue 1=010", `--queue "1=010": a number that begins with 0`},
		{"--port 01=@lo", `--port "01=@lo": a number that begins with 0`},
		{"--queue 1=0", "expected NUMBER=RATE"},
		{"--queue 1=fast", "expected NUMBER=RATE"},
		{"--queue 1=10/0", "expected NUMBER=RATE"},
		{"--queue one=10", "or all instead of the number"},
		{"--queue 1=10", "port 1: not found"},
		{"--grpc-ports 2 --queue 1=1,2,3,4,5,6,7,8,9", "9 queues; there are 1 to 8"},
		{"--log loud", "expected debug, info, warn or error"},
	} {
		cmd := root()
		cmd.SetErr(io.Discard)
		cmd.SetArgs(append([]string{"switch", "--listen", "127.0.0.1:0"}, strings.Fields(tc.args)...))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(fmt.Sprint(err), tc.wants) {
			t.Errorf("%s: %v; want an error with %q", tc.args, err, tc.wants)
		}
	}
}

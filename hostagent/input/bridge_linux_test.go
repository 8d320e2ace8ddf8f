// SPDX-License-Identifier: Apache-2.0

package input

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// TestFanout: each frame arrives at one socket, and all frames of a flow at the same one.
func TestFanout(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	addLinks(t)
	from, err := openEndpoint("net")
	if err != nil {
		t.Fatal(err)
	}
	defer from.close()
	to, err := openFanout("outside", 2)
	if err != nil {
		t.Fatal(err)
	}
	defer to.close()
	const flows, each = 32, 5
	for range each {
		for n := range byte(flows) {
			if err := send(from.tx, frame(n, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var seen [2]map[string]int
	all := 0
	testkit.Until(t, "all frames", func() bool {
		for i, e := range to {
			if seen[i] == nil {
				seen[i] = map[string]int{}
			}
			in := newReceiver(e)
			for in.next(func(got []byte) {
				if bytes.HasPrefix(got, frame(0, 0)[:11]) {
					seen[i][string(got)]++
					all++
				}
			}) == nil {
			}
		}
		return all >= flows*each
	})
	for n := range byte(flows) {
		f := frame(n, 0)
		if a, b := seen[0][string(f)], seen[1][string(f)]; max(a, b) != each || min(a, b) != 0 {
			t.Errorf("flow %d: %d and %d frames, want %d at one socket", n, a, b, each)
		}
	}
	if len(seen[0]) == 0 || len(seen[1]) == 0 {
		t.Errorf("%d and %d flows at the sockets", len(seen[0]), len(seen[1]))
	}
}

// addLinks connects host with inside, and outside with net.
func addLinks(t testing.TB) {
	t.Helper()
	for _, name := range []string{"all", "default"} { // a kernel without IPv6 has no such file
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0o600)
	}
	for _, args := range []string{
		"link add name host type veth peer name inside", "link add name outside type veth peer name net",
		"link set up dev host", "link set up dev inside", "link set up dev outside", "link set up dev net",
	} {
		if err := testkit.IP(args); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBridge(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	addLinks(t)
	open := func(name string) *endpoint {
		e, err := openEndpoint(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.close)
		return e
	}
	host, network := open("host"), open("net")
	b := Bridge{Inside: "inside", Outside: "outside", Sockets: 2}
	if err := b.Check(); err == nil || !strings.Contains(err.Error(), "MTU") {
		t.Errorf("check: %v, want an error about the MTU", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var r recorder
	var stats Stats
	done := make(chan error, 1)
	go func() {
		var err error
		stats, err = b.Run(ctx, &r)
		done <- err
	}()
	// The bridge may not be open yet: send until a frame arrives.
	expect := func(from, to *endpoint, sent, want []byte) {
		t.Helper()
		in := newReceiver(to)
		testkit.Until(t, "a frame at "+to.name, func() bool {
			if err := send(from.tx, sent); err != nil {
				t.Fatal(err)
			}
			found := false
			for !found && in.next(func(got []byte) { found = bytes.Equal(got, want) }) == nil {
			}
			return found
		})
	}
	marked := frame(1, 7)
	marked[len(marked)-1] = 0xee
	expect(host, network, frame(1, 7), marked)
	for n := byte(2); n < 34; n++ { // flows of both sockets
		expect(network, host, frame(n, 0), frame(n, 0))
	}
	cancel()
	if err := <-done; err != nil || stats.Out == 0 || stats.In == 0 || stats.Unsent != 0 {
		t.Errorf("%v, %+v", err, stats)
	}
	if slices.Contains(r.in, string(marked)) {
		t.Error("the bridge read a frame that it had sent")
	}
	missing := Bridge{Inside: "inside", Outside: "missing"}
	if err := missing.Check(); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("check of a missing interface: %v", err)
	}
}

// nothing is a path that changes no packet.
type nothing struct{ largest atomic.Int64 }

func (*nothing) Lane() role.Lane { return new(nothing) }

func (n *nothing) Out(frames []*packet.Frame) {
	for _, f := range frames {
		n.largest.Store(max(n.largest.Load(), int64(len(f.Bytes()))))
	}
}

func (n *nothing) In(frames []*packet.Frame) { n.Out(frames) }

// TestBridgeTCP: a stream passes a bridge with the offloads that interfaces have by default, in
// packets of the size of the link.
func TestBridgeTCP(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	addLinks(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var path nothing
	var stats Stats
	bridge := make(chan error, 1)
	go func() {
		var err error
		stats, err = Bridge{Inside: "inside", Outside: "outside"}.Run(ctx, &path)
		bridge <- err
	}()
	const size = 4 << 20
	address := func(name, host string) []string {
		return []string{"link set dev " + name + " up", "addr add " + host + "/24 dev " + name}
	}
	// A namespace, and with it the interfaces of the bridge, ends with its function.
	results, over := make(chan error, 2), make(chan struct{})
	stay := func(run func() error) func() error {
		return func() error {
			results <- run()
			<-over
			return nil
		}
	}
	listening := make(chan struct{})
	server := testkit.InNamespace(t, "net", address("net", "10.0.0.2"), stay(func() error {
		l, err := net.Listen("tcp4", "10.0.0.2:7")
		close(listening)
		if err != nil {
			return err
		}
		defer l.Close()
		c, err := l.Accept()
		if err != nil {
			return err
		}
		defer c.Close()
		if n, err := io.Copy(io.Discard, c); err != nil || n != size {
			return fmt.Errorf("%d bytes arrived, %w", n, err)
		}
		_, err = c.Write([]byte("done"))
		return err
	}))
	<-listening
	client := testkit.InNamespace(t, "host", address("host", "10.0.0.1"), stay(func() error {
		c, err := (&net.Dialer{Timeout: 2 * time.Minute}).Dial("tcp4", "10.0.0.2:7")
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write(make([]byte, size)); err != nil {
			return err
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
		_, err = io.ReadAll(c)
		return err
	}))
	if err := errors.Join(<-results, <-results); err != nil {
		t.Error(err)
	}
	cancel()
	err := <-bridge
	close(over)
	if err := errors.Join(<-client, <-server); err != nil {
		t.Error(err)
	}
	// IPv6 frames that an interface sends when it comes up may find the other interface down.
	if err != nil || stats.Unsent > 8 || stats.Unsplit+stats.Truncated != 0 || stats.Out < size/1460 {
		t.Errorf("%v, %+v", err, stats)
	}
	if n := path.largest.Load(); n != 1514 {
		t.Errorf("the largest frame has %d bytes, want 1514", n)
	}
}

// TestUnsent: frames that the kernel refuses are counted by reason, and logged while the bridge
// runs.
func TestUnsent(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	addLinks(t)
	if err := testkit.IP("link set dev outside mtu 100"); err != nil {
		t.Fatal(err)
	}
	host, err := openEndpoint("host")
	if err != nil {
		t.Fatal(err)
	}
	defer host.close()
	log := new(lockedBuffer)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var stats Stats
	go func() {
		var err error
		stats, err = Bridge{Inside: "inside", Outside: "outside",
			Logger: slog.New(slog.NewTextHandler(log, nil))}.Run(ctx, new(nothing))
		done <- err
	}()
	testkit.Until(t, "a line of the log", func() bool {
		if err := send(host.tx, append(frame(1, 7), make([]byte, 300)...)); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(log.String(), "outside: longer than the MTU")
	})
	cancel()
	if err := <-done; err != nil || stats.Unsent == 0 {
		t.Errorf("%v, %+v", err, stats)
	}
}

// TestOutage: a bridge waits for an interface that goes down, and for one that is deleted, and
// forwards when it is back.
func TestOutage(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	addLinks(t)
	log := new(lockedBuffer)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var stats Stats
	go func() {
		var err error
		stats, err = Bridge{Inside: "inside", Outside: "outside", Sockets: 2,
			Logger: slog.New(slog.NewTextHandler(log, nil))}.Run(ctx, new(nothing))
		done <- err
	}()
	forwards := func(fromName, toName string) {
		t.Helper()
		from, err := openEndpoint(fromName)
		if err != nil {
			t.Fatal(err)
		}
		defer from.close()
		to, err := openEndpoint(toName)
		if err != nil {
			t.Fatal(err)
		}
		defer to.close()
		in := newReceiver(to)
		testkit.Until(t, "a frame at "+toName, func() bool {
			if err := send(from.tx, frame(1, 0)); err != nil {
				t.Fatal(err)
			}
			found := false
			for !found && in.next(func(got []byte) { found = bytes.HasPrefix(got, frame(1, 0)[:50]) }) == nil {
			}
			return found
		})
	}
	change := func(args ...string) {
		t.Helper()
		for _, a := range args {
			if err := testkit.IP(a); err != nil {
				t.Fatal(err)
			}
		}
	}
	forwards("host", "net")
	for i, c := range []struct{ breaks, mends []string }{
		{[]string{"link set dev outside down"}, []string{"link set dev outside up"}},
		{[]string{"link set dev inside down"}, []string{"link set dev inside up"}},
		{[]string{"link del dev outside"}, []string{"link add name outside type veth peer name net",
			"link set dev net up", "link set dev outside up"}},
	} {
		change(c.breaks...)
		testkit.Until(t, "a line of the log", func() bool {
			return strings.Count(log.String(), "nothing is forwarded until it is up") == i+1
		})
		change(c.mends...)
		forwards("host", "net")
		forwards("net", "host")
	}
	cancel()
	if err := <-done; err != nil || stats.Outages != 3 {
		t.Errorf("%v, %+v", err, stats)
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestLinkType: an interface without Ethernet headers is refused, with its link type.
func TestLinkType(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	if err := testkit.IP("tuntap add dev tun0 mode tun"); err != nil {
		t.Skip(err)
	}
	err := Bridge{Inside: "tun0", Outside: "lo"}.Check()
	if err == nil || !strings.Contains(err.Error(), "without link-layer headers (link type 0xfffe)") {
		t.Errorf("%v", err)
	}
}

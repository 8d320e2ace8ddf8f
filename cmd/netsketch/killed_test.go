// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector/devconfig"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/switchgnmi"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
	"github.com/netsketch/netsketch/yang"
)

// collectorFile is the environment variable that makes the test binary a collector.
const collectorFile = "NETSKETCH_TEST_COLLECTOR"

// holdingSwitch is an unconfigured switch that holds one message of a change, so that the collector
// is killed between two steps.
type holdingSwitch struct {
	addr    string
	commits bool
	breaks  bool // the first reading after a Set fails, so that the change is undone
	// at names the message that is held: "set 1 arrives", "set 1 is answered", "read 2 arrives".
	at   string
	lost bool // the message that is held is not carried out

	mu      sync.Mutex
	counts  map[string]int
	held    chan struct{} // closed when the message has arrived
	release chan struct{}
	once    sync.Once
}

func newHoldingSwitch(t *testing.T, h *holdingSwitch) *holdingSwitch {
	sw := softswitch.New(softswitch.Config{})
	for port := uint32(1); port <= 2; port++ {
		err := sw.AddPort(port, softswitch.Port{Name: fmt.Sprint("p", port), Tx: func([]byte, time.Duration) {}})
		if err != nil {
			t.Fatal(err)
		}
	}
	p4rt := p4rtserver.New(sw, p4rtserver.Options{NoDeviceID: true})
	server, err := switchgnmi.New(sw, switchgnmi.Options{Name: "s", Unconfigured: true, SetDeviceID: p4rt.SetDeviceID})
	if err != nil {
		t.Fatal(err)
	}
	h.counts, h.held, h.release = map[string]int{}, make(chan struct{}), make(chan struct{})
	rpc := grpc.NewServer(append(p4rtserver.ServerOptions(), grpc.UnaryInterceptor(h.unary),
		grpc.StreamInterceptor(h.stream))...)
	p4rt.Register(rpc)
	server.Register(rpc)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = lis.Addr().String()
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(lis) }()
	t.Cleanup(func() {
		h.once.Do(func() { close(h.release) })
		rpc.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
		p4rt.Close()
		sw.Close()
	})
	return h
}

// reached reports whether n messages of a kind were counted.
func (h *holdingSwitch) reached(kind string, n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts[kind] >= n
}

// count numbers the messages of a kind that follow the probe for commits.
func (h *holdingSwitch) count(kind string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts["probe"] == 0 && kind != "probe" {
		return ""
	}
	h.counts[kind]++
	return fmt.Sprint(kind, " ", h.counts[kind])
}

// hold waits at one message until the collector is killed, and reports whether it waited.
func (h *holdingSwitch) hold(message string) bool {
	if message != h.at {
		return false
	}
	close(h.held)
	<-h.release
	return true
}

// kindOf names a Set.
func (h *holdingSwitch) kindOf(req *gpb.SetRequest) string {
	for _, e := range req.GetExtension() {
		switch c := e.GetCommit(); {
		case c.GetCancel() != nil:
			return "cancel"
		case c.GetConfirm() != nil && h.reached("probe", 1):
			return "confirm"
		case c.GetConfirm() != nil:
			return "probe"
		}
	}
	return "set"
}

func (h *holdingSwitch) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any,
	error,
) {
	set, ok := req.(*gpb.SetRequest)
	if !ok {
		return handle(ctx, req)
	}
	message := h.count(h.kindOf(set))
	if h.hold(message+" arrives") && h.lost {
		return nil, status.Error(codes.Canceled, "lost")
	}
	var answer any
	var err error
	if h.commits {
		answer, err = handle(ctx, set)
	} else if set.Extension = nil; len(set.GetUpdate())+len(set.GetDelete()) > 0 {
		answer, err = handle(ctx, set)
	} else {
		answer = &gpb.SetResponse{}
	}
	h.hold(message + " is answered")
	return answer, err
}

func (h *holdingSwitch) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	return handle(srv, &heldStream{stream, h})
}

// heldStream is a stream whose first message may be held.
type heldStream struct {
	grpc.ServerStream
	h *holdingSwitch
}

// RecvMsg implements grpc.ServerStream.
func (s *heldStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	switch req := m.(type) {
	case *gpb.SubscribeRequest:
		if err == nil && req.GetSubscribe().GetMode() == gpb.SubscriptionList_ONCE {
			message := s.h.count("read")
			s.h.hold(message + " arrives")
			if s.h.breaks && message == "read 1" {
				return status.Error(codes.Unavailable, "the switch restarts its gNMI server")
			}
		}
	case *p4v1.StreamMessageRequest:
		// A session from before the change may still bid.
		if err == nil && req.GetArbitration() != nil && s.h.reached("read", 2) {
			s.h.hold(s.h.count("arbitration") + " arrives")
		}
	}
	return err
}

// startProcess starts a collector as a process of its own.
func startProcess(t *testing.T, file string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), collectorFile+"="+file)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the process may have ended
		if _ = cmd.Wait(); t.Failed() {
			t.Logf("the collector:\n%s", &log)
		}
	})
	return cmd
}

// A collector process that is killed between any two steps of a change knows, when it starts again,
// what to undo and what to confirm. The record on disk has the step.
func TestKilledBetweenSteps(t *testing.T) {
	const none = devconfig.State("")
	type moment struct {
		at    string
		lost  bool
		state devconfig.State // step in the record on disk; "none" without a change in progress
		kept  bool            // whether the switch keeps the change
	}
	both := []moment{
		{"probe 1 arrives", false, none, false}, {"set 1 arrives", true, devconfig.Setting, false},
		{"set 1 arrives", false, devconfig.Setting, false}, {"set 1 is answered", false, devconfig.Setting, false},
		{"read 1 arrives", false, devconfig.ReadingBack, false}, {"read 2 arrives", false, devconfig.AwaitingState, false},
		{"arbitration 1 arrives", false, devconfig.Connecting, false},
		{"read 3 arrives", false, devconfig.Connecting, false},
	}
	for name, c := range map[string]struct {
		commits, breaks bool
		moments         []moment
	}{
		"with commits": {true, false, append(both[:len(both):len(both)],
			moment{"confirm 1 arrives", true, devconfig.Confirming, true},
			moment{"confirm 1 arrives", false, devconfig.Confirming, true},
			moment{"confirm 1 is answered", false, devconfig.Confirming, true}, moment{"read 4 arrives", false, none, true})},
		"without commits": {false, false, append(both[:len(both):len(both)], moment{"read 4 arrives", false, none, true})},
		"undo with commits": {true, true, []moment{{"read 2 arrives", false, devconfig.Undoing, false},
			{"cancel 1 arrives", true, devconfig.Undoing, false}, {"cancel 1 arrives", false, devconfig.Undoing, false},
			{"cancel 1 is answered", false, devconfig.Undoing, false}}},
		"undo without commits": {false, true, []moment{{"read 2 arrives", false, devconfig.Undoing, false},
			{"set 2 arrives", true, devconfig.Undoing, false}, {"set 2 arrives", false, devconfig.Undoing, false},
			{"set 2 is answered", false, devconfig.Undoing, false}}},
	} {
		for _, m := range c.moments {
			t.Run(fmt.Sprintf("%s/%s, lost: %v", name, m.at, m.lost), func(t *testing.T) {
				t.Parallel()
				killed(t, newHoldingSwitch(t, &holdingSwitch{commits: c.commits, breaks: c.breaks, at: m.at, lost: m.lost}),
					m.state, m.kept)
			})
		}
	}
}

// killed kills a collector when the switch holds a message, and starts the next one.
func killed(t *testing.T, h *holdingSwitch, state devconfig.State, kept bool) {
	dir, err := os.MkdirTemp("", "killed") // the path of a socket in it must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file, records := filepath.Join(dir, "netsketch.yaml"), filepath.Join(dir, "state")
	text := fmt.Sprintf("device-configuration: {directory: %s}\ndevices:\n  - {name: s1, address: %[2]q, device-id: 7, "+
		"tls: {plaintext: true}, gnmi: {address: %[2]q, tls: {plaintext: true}, configure: apply, "+
		"ports: [{number: 1, interface: p1}]}}\nhosts:\n  - {name: h1, port: s1/1, mac: \"02:00:00:00:00:01\", "+
		"addresses: [10.0.0.1]}\n", records, h.addr)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	digest := func() (digest string, ok bool) { // digest of the switch's plan
		reply, err := devconfig.Call(t.Context(), records, devconfig.Request{Command: "plan"})
		if err != nil || len(reply.Plans) == 0 || reply.Plans[0].Error != "" {
			return "", false
		}
		return reply.Plans[0].Digest, true
	}
	process := startProcess(t, file)
	var before string
	testkit.Until(t, "a plan", func() bool { before, _ = digest(); return before != "" })
	applied := make(chan struct{})
	go func() {
		defer close(applied)
		_, _ = devconfig.Call(t.Context(), records, devconfig.Request{Command: "apply", Digest: before})
	}()
	select {
	case <-h.held:
	case <-applied:
		t.Fatalf("the change is over without %q", h.at)
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait() // killed
	<-applied
	if got := pendingState(t, records); got != state {
		t.Errorf("the record has the state %q; expected %q", got, state)
	}
	h.once.Do(func() { close(h.release) })
	startProcess(t, file)
	want := before
	if kept {
		want = ""
	}
	testkit.Until(t, "the change is ended", func() bool {
		got, ok := digest()
		// The record stays Undoing while the collector waits for a Set that the switch may carry out
		// late.
		now := pendingState(t, records)
		return ok && got == want && (now == "" || now == devconfig.Undoing)
	})
	conn, err := grpc.NewClient(h.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	path, err := yang.ParsePath("/interfaces/interface[name=p2]/config/description")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "no commit is pending", func() bool { // the switch refuses other changes until then
		_, err := gpb.NewGNMIClient(conn).Set(t.Context(), &gpb.SetRequest{Update: []*gpb.Update{{Path: path,
			Val: &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: "free"}}}}})
		return err == nil
	})
}

// pendingState returns the state of the change in progress by the record; "" if there is none.
func pendingState(t *testing.T, records string) devconfig.State {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(records, "s1.json"))
	if os.IsNotExist(err) {
		return ""
	}
	var r devconfig.Record
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.Pending == nil {
		return ""
	}
	return r.Pending.State
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// serveResults serves one heavy hitter over gNMI, and returns the address.
func serveResults(t *testing.T, opts ...grpc.ServerOption) string {
	t.Helper()
	return serveRows(t, 1, opts...)
}

// serveRows serves heavy hitters.
func serveRows(t *testing.T, n int, opts ...grpc.ServerOption) string {
	t.Helper()
	schema, err := yang.Load(yangtest.Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	st := store.New(store.Options{DefaultTarget: "netsketch", Schema: schema})
	b := table.NewBuilder("/netsketch-univmon:univmon/heavy-hitters/heavy-hitter")
	device, dimension, flow, packets := b.TextKey("node"), b.TextKey("dimension"), b.TextKey("flow"),
		b.Uint("state/packets")
	for i := 1; i <= n; i++ {
		device.Append("leaf1")
		dimension.Append("src")
		flow.Append(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff))
		packets.Append(1200)
	}
	rows, err := b.Table()
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if err := st.Publish(store.Batch{Time: at, Epoch: 1,
		Tables: []store.Publication{{Table: rows, Replace: true}}}); err != nil {
		t.Fatal(err)
	}
	gnmi, err := server.New(server.Options{Store: st, Schema: func() *yang.Schema { return schema },
		Querier: refusing{}})
	if err != nil {
		t.Fatal(err)
	}
	rpc := grpc.NewServer(opts...)
	gnmi.Register(rpc)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- rpc.Serve(lis) }()
	t.Cleanup(func() {
		rpc.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		st.Close()
	})
	return lis.Addr().String()
}

func runQuery(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append([]string{"query"}, args...))
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

func TestQueryPrintsATable(t *testing.T) {
	got, err := runQuery("/univmon/heavy-hitters", "--address", serveResults(t))
	if err != nil {
		t.Fatal(err)
	}
	want := "/univmon/heavy-hitters/heavy-hitter\n" +
		"NODE   DIMENSION  FLOW      PACKETS\n" +
		"leaf1  src        10.0.0.1  1200\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An answer with many rows is longer than gRPC receives by default.
func TestQueryOfManyRows(t *testing.T) {
	const rows = 20000
	got, err := runQuery("/univmon/heavy-hitters", "--address", serveRows(t, rows), "--timeout", "1m")
	if n := strings.Count(got, "\n"); err != nil || n != rows+2 {
		t.Errorf("%d lines, %v", n, err)
	}
}

func TestQueryPrintsJSON(t *testing.T) {
	out, err := runQuery("/univmon/heavy-hitters/heavy-hitter[flow=10.0.0.1]/state/packets", "--json", "--address",
		serveResults(t))
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	want := []any{map[string]any{
		"list": "/univmon/heavy-hitters/heavy-hitter",
		"rows": []any{map[string]any{
			"time": "2026-03-01T12:00:00Z", "values": map[string]any{"packets": 1200.0},
			"keys": map[string]any{"node": "leaf1", "dimension": "src", "flow": "10.0.0.1"},
		}},
	}}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestQueryOverTLS(t *testing.T) {
	https := httptest.NewTLSServer(nil)
	defer https.Close()
	address := serveResults(t, grpc.Creds(credentials.NewServerTLSFromCert(&https.TLS.Certificates[0])))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw}
	if err := os.WriteFile(ca, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := runQuery("/univmon/heavy-hitters", "--address", address, "--ca-file", ca); err != nil ||
		!strings.Contains(out, "10.0.0.1") {
		t.Errorf("%v:\n%s", err, out)
	}
	if _, err := runQuery("/univmon/heavy-hitters", "--address", address, "--server-name", "localhost"); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("an authority that is not trusted: %v", err)
	}
}

func TestQueryErrors(t *testing.T) {
	address := serveResults(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	for _, test := range []struct{ name, args, want string }{
		{"no path", "--address " + address, "query: 0 paths are given; expected one gNMI path"},
		{"not a path", "univmon --address " + address, `path "univmon" does not begin with /`},
		{"outside the schema", "/univmon/flws --address " + address, `Unimplemented: path: there is no "flws"`},
		{"no value", "/univmon/node-summaries --address " + address,
			"NotFound: Get: /univmon/node-summaries has no value (yet)"},
		{"no such row", "/univmon/heavy-hitters/heavy-hitter[node=spine9] --address " + address,
			"netsketch query --address " + address + " /univmon/heavy-hitters/heavy-hitter"},
		{"no target", "/univmon --target leaf9 --address " + address, `NotFound: Get: there is no target "leaf9"`},
		{"no server", "/univmon --address " + free.Addr().String(),
			"no gNMI server answers on " + free.Addr().String()},
		{"no port", "/univmon --address localhost", `--address "localhost": expected host:port`},
		{"no such file", "/univmon --ca-file /nowhere/ca.pem --address " + address, "ca-file: open /nowhere/ca.pem"},
		{"plaintext and TLS", "/univmon --plaintext --ca-file x --address " + address, "none of the others can be"},
		{"a certificate without key", "/univmon --cert-file x --address " + address, "key-file"},
	} {
		if out, err := runQuery(strings.Fields(test.args)...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q in it\n%s", test.name, err, test.want, out)
		}
	}
}

// --watch prints values until the user interrupts it.
func TestQueryWatches(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address := serveResults(t)
	r, w := io.Pipe()
	cmd := root()
	cmd.SetOut(w)
	cmd.SetErr(w)
	cmd.SetArgs([]string{"query", "--watch", "/univmon/heavy-hitters/heavy-hitter/state/packets", "--address", address})
	done := make(chan error, 1)
	go func() {
		done <- cmd.ExecuteContext(ctx)
		w.Close()
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if want := "[flow=10.0.0.1][node=leaf1]/state/packets 1200\n"; err != nil || !strings.HasSuffix(line, want) {
		t.Errorf("%q, %v; expected it to end with %q", line, err, want)
	}
	cancel()
	r.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	r, w = io.Pipe()
	cmd = root()
	cmd.SetOut(io.Discard)
	cmd.SetErr(w)
	cmd.SetArgs([]string{"query", "--watch", "/univmon/heavy-hitters/heavy-hitter[flow=10.0.0.9]", "--address", address})
	go func() { done <- cmd.ExecuteContext(ctx) }()
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || !strings.Contains(line, "has no value yet") {
		t.Errorf("a row that is not there: %q, %v", line, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := runQuery("--watch", "/univmon/flws", "--address", address); err == nil ||
		!strings.Contains(err.Error(), `Unimplemented`) {
		t.Errorf("a path outside the schema: %v", err)
	}
}

// A plugin's message about the keys of a watched row is printed, and the row stays watched.
func TestQueryWatchesARefusedRow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address := serveResults(t)
	r, w := io.Pipe()
	cmd := root()
	cmd.SetOut(io.Discard)
	cmd.SetErr(w)
	cmd.SetArgs([]string{"query", "--watch", "/univmon/flows/flow[node=leaf1][dimension=src][flow=10.0.0.300]",
		"--address", address})
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	notes := bufio.NewReader(r)
	for _, want := range []string{"has no value yet", "the plugin refuses the keys"} {
		if line, err := notes.ReadString('\n'); err != nil || !strings.Contains(line, want) {
			t.Errorf("%q, %v, want %q", line, err, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// refusing refuses the keys of every row.
type refusing struct{}

func (refusing) Query(context.Context, string, string, map[string]string) (*store.View, error) {
	return nil, status.Error(codes.FailedPrecondition, "the plugin refuses the keys")
}

// A hint says what is wrong with a flow, in itself or for its dimension.
func TestFlowFault(t *testing.T) {
	for _, tc := range []struct{ text, dimension, want string }{
		{"10.0.0.1", "src", ""},
		{"10.0.0.1", "", ""},
		{"10.0.0.1,10.0.1.2,tcp,1,2", "5-tuple", ""},
		{"10.0.0.300", "src", "is neither an IP address"},
		{"10.0.0.1", "5-tuple", "is a flow of dimension dst or src, not of 5-tuple"},
		{"10.0.0.1,10.0.1.2,TCP,1,2", "5-tuple", "write flow=10.0.0.1,10.0.1.2,tcp,1,2"},
		{"2001:DB8::1", "", "write flow=2001:db8::1"},
		{"10.0.0.1", "srcs", "not of srcs"},
	} {
		if got := flowFault(tc.text, tc.dimension); !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%s of %q: %q, want %q", tc.text, tc.dimension, got, tc.want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// A query with --text prints the results of each epoch until it is interrupted.
func TestQueryText(t *testing.T) {
	schema, err := yang.Load(yangtest.Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	st := store.New(store.Options{DefaultTarget: "netsketch", Schema: schema})
	gnmi, err := server.New(server.Options{Store: st, Schema: func() *yang.Schema { return schema }})
	if err != nil {
		t.Fatal(err)
	}
	rpc := grpc.NewServer()
	gnmi.Register(rpc)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = rpc.Serve(lis) }()
	defer rpc.Stop()

	const text = "x = packets\n  .distinct(src, dst)\n"
	file := filepath.Join(t.TempDir(), "x.query")
	if err := os.WriteFile(file, []byte("\ufeff"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	publish := func(epoch uint64, results ...string) {
		t.Helper()
		b := table.NewBuilder("/netsketch-omnimon:omnimon/queries/query")
		name, number, quality := b.TextKey("name"), b.Uint("state/last-epoch"), b.Text("state/quality")
		name.Append("q-1")
		number.Append(epoch)
		quality.Append("EXACT")
		queries, err := b.Table()
		if err != nil {
			t.Fatal(err)
		}
		b = table.NewBuilder("/netsketch-omnimon:omnimon/queries/query/results/result")
		name, key, tuple := b.TextKey("query/name"), b.TextKey("key"), b.Text("state/tuple")
		for _, r := range results {
			name.Append("q-1")
			key.Append(r)
			tuple.Append("tuple " + r)
		}
		name.Append("q-2") // of another client
		key.Append("z")
		tuple.Append("tuple z")
		rows, err := b.Table()
		if err != nil {
			t.Fatal(err)
		}
		b = table.NewBuilder("/netsketch-omnimon:omnimon/requests/request")
		request, name := b.TextKey("text"), b.Text("state/name")
		request.Append(text)
		name.Append("q-1")
		requests, err := b.Table()
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Publish(store.Batch{Time: time.Unix(int64(epoch), 0), Epoch: epoch,
			Tables: []store.Publication{{Table: queries, Replace: true}, {Table: rows, Replace: true},
				{Table: requests, Replace: true}}}); err != nil {
			t.Fatal(err)
		}
	}
	publish(1, "a", "b")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	cmd := queryCommand()
	cmd.SetArgs([]string{"--plugin", "omnimon", "--text", file, "--address", lis.Addr().String()})
	cmd.SetOut(writer)
	done := make(chan error, 1)
	go func() {
		done <- cmd.ExecuteContext(ctx)
		writer.Close()
	}()
	stop := make(chan struct{})
	go func() { // epochs continue until the command has printed enough
		for epoch := uint64(2); ; epoch++ {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				publish(epoch, "b", "c")
			}
		}
	}()
	var lines []string
	scanner := bufio.NewScanner(reader)
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
		if strings.Contains(scanner.Text(), "tuple c") {
			break
		}
	}
	close(stop)
	cancel()
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	if err := <-done; err != nil {
		t.Errorf("interrupted: %v", err)
	}
	if n := len(lines); n < 3 || !strings.HasSuffix(lines[n-3], ", 2 results, exact") || lines[n-2] != "  tuple b" {
		t.Errorf("output %q", lines)
	}
}

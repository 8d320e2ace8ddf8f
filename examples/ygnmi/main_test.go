// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/grpctest"
	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// serve returns a store and a connection to a gNMI server of its content.
func serve(t *testing.T) (*store.Store, *grpc.ClientConn) {
	t.Helper()
	schema := yangtest.Schema(t)
	st := store.New(store.Options{Schema: schema})
	s, err := server.New(server.Options{Store: st, Schema: func() *yang.Schema { return schema }})
	if err != nil {
		t.Fatal(err)
	}
	conn := grpctest.Serve(t, s.Register)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		st.Close()
	})
	return st, conn
}

type hitter struct {
	device, flow string
	packets      uint64
	share        float64
}

func publish(t *testing.T, st *store.Store, epoch uint64, rows ...hitter) {
	t.Helper()
	b := table.NewBuilder("/netsketch-univmon:univmon/heavy-hitters/heavy-hitter")
	device, dimension, flow := b.TextKey("node"), b.TextKey("dimension"), b.TextKey("flow")
	packets, share := b.Uint("state/packets"), b.Float("state/share")
	for _, r := range rows {
		device.Append(r.device)
		dimension.Append("src")
		flow.Append(r.flow)
		packets.Append(r.packets)
		share.Append(r.share)
	}
	tab, err := b.Table()
	if err != nil {
		t.Fatal(err)
	}
	batch := store.Batch{Time: time.Unix(int64(epoch), 0), Epoch: epoch,
		Tables: []store.Publication{{Table: tab, Replace: true}}}
	if err := st.Publish(batch); err != nil {
		t.Fatal(err)
	}
}

// TestWatch follows the rows of one of two devices through a change and a removal.
func TestWatch(t *testing.T) {
	st, conn := serve(t)
	other := hitter{"leaf2", "10.0.0.9", 1000, 0.5}
	publish(t, st, 1, hitter{"leaf1", "10.0.0.1", 700, 0.7}, hitter{"leaf1", "10.0.0.2", 100, 0.125}, other)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := watch(ctx, conn, "leaf1", w)
		w.CloseWithError(fmt.Errorf("watch ended: %w", err))
		done <- err
	}()
	lines := bufio.NewScanner(r)
	expect := func(want ...string) {
		t.Helper()
		for _, line := range want {
			if !lines.Scan() {
				t.Fatal(lines.Err())
			}
			if lines.Text() != line {
				t.Errorf("got %q; expected %q", lines.Text(), line)
			}
		}
	}
	expect("leaf1 src 10.0.0.1: 700 packets, 70.0 % of all", "leaf1 src 10.0.0.2: 100 packets, 12.5 % of all")
	publish(t, st, 2, hitter{"leaf1", "10.0.0.1", 800, 0.7}, hitter{"leaf1", "10.0.0.2", 100, 0.125}, other)
	expect("leaf1 src 10.0.0.1: 800 packets, 70.0 % of all")
	publish(t, st, 3, hitter{"leaf1", "10.0.0.1", 800, 0.7}, other)
	expect("leaf1 src 10.0.0.2: no longer a heavy hitter")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
		t.Errorf("watch returned %v; expected a cancellation", err)
	}
}

// TestWatchFails checks that an error of the server ends the program.
func TestWatchFails(t *testing.T) {
	_, conn := serve(t)
	conn.Close()
	if err := watch(t.Context(), conn, "leaf1", io.Discard); err == nil {
		t.Error("a closed connection is no error")
	}
}

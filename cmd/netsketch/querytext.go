// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/files"
	"github.com/netsketch/netsketch/yang"
)

// runQuery runs a query until ctx ends, and prints its results after each epoch. The query runs in
// the collector as long as this subscription exists.
func (f *queryFlags) runQuery(ctx context.Context, w io.Writer) error {
	if f.plugin != "omnimon" {
		return fmt.Errorf("query: --plugin %q has no query language: use --plugin omnimon", f.plugin)
	}
	text, err := files.ReadText(f.text)
	if err != nil {
		return fmt.Errorf("query: --text: %w", err)
	}
	conn, err := f.connect()
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	defer conn.Close()
	stream, err := f.subscribe(ctx, conn,
		&gpb.Path{Elem: []*gpb.PathElem{{Name: "omnimon"}, {Name: "requests"},
			{Name: "request", Key: map[string]string{"text": string(text)}}}},
		&gpb.Path{Elem: []*gpb.PathElem{{Name: "omnimon"}, {Name: "queries"}}})
	if err != nil {
		return err
	}
	v := queryView{leaves: map[string]*gpb.Update{}, json: f.json}
	for {
		m, err := stream.Recv()
		switch {
		case ctx.Err() != nil || errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("query: %w", f.explain(err))
		}
		if n := m.GetUpdate(); n != nil {
			if err := v.update(w, n); err != nil {
				return err
			}
		}
	}
}

// subscribe opens a subscription to paths, on change.
func (f *queryFlags) subscribe(ctx context.Context, conn *grpc.ClientConn, paths ...*gpb.Path) (
	gpb.GNMI_SubscribeClient, error) {
	stream, err := gpb.NewGNMIClient(conn).Subscribe(f.login(ctx))
	if err != nil {
		return nil, fmt.Errorf("query: %w", f.explain(err))
	}
	list := &gpb.SubscriptionList{Prefix: &gpb.Path{Target: f.target}, Encoding: gpb.Encoding_PROTO}
	for _, p := range paths {
		list.Subscription = append(list.Subscription, &gpb.Subscription{Path: p})
	}
	if err := stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}}); err != nil &&
		!errors.Is(err, io.EOF) { // after io.EOF, Recv returns the error that ended the stream
		return nil, fmt.Errorf("query: %w", f.explain(err))
	}
	return stream, nil
}

// queryView is the newest state of all queries. It prints one of them: the query that the plugin
// names in the row of the request. All notifications of one epoch have the same timestamp.
type queryView struct {
	name   string
	leaves map[string]*gpb.Update // leaves by path
	time   int64
	json   bool
}

// update applies a notification. If it begins a new epoch, update first prints the previous epoch,
// which is complete.
func (v *queryView) update(w io.Writer, n *gpb.Notification) error {
	if n.GetTimestamp() > v.time {
		if err := v.print(w); err != nil {
			return err
		}
		v.time = n.GetTimestamp()
	}
	path := func(p *gpb.Path) []*gpb.PathElem { return slices.Concat(n.GetPrefix().GetElem(), p.GetElem()) }
	for _, p := range n.GetDelete() {
		gone := yang.PathString(path(p))
		maps.DeleteFunc(v.leaves, func(at string, _ *gpb.Update) bool {
			return at == gone || strings.HasPrefix(at, gone+"/")
		})
	}
	for _, u := range n.GetUpdate() {
		elems := path(u.GetPath())
		v.leaves[yang.PathString(elems)] = &gpb.Update{Path: &gpb.Path{Elem: elems}, Val: u.GetVal()}
		if len(elems) != 5 || elems[1].GetName() != "requests" {
			continue
		}
		switch elems[4].GetName() {
		case "name":
			v.name = u.GetVal().GetStringVal()
		case "problem":
			return status.Error(codes.InvalidArgument, u.GetVal().GetStringVal())
		}
	}
	return nil
}

// print prints the results of the epoch.
func (v *queryView) print(w io.Writer) error {
	state, results := map[string]*gpb.TypedValue{}, &gpb.Notification{Timestamp: v.time}
	for _, at := range slices.Sorted(maps.Keys(v.leaves)) {
		u := v.leaves[at]
		switch elems := u.GetPath().GetElem(); {
		case len(elems) > 2 && elems[1].GetName() == "queries" && elems[2].GetKey()["name"] != v.name:
		case len(elems) > 4 && elems[3].GetName() == "results":
			if last := elems[len(elems)-1].GetName(); last == "tuple" || last == "value" {
				results.Update = append(results.Update, u)
			}
		case elems[1].GetName() == "queries":
			state[elems[len(elems)-1].GetName()] = u.GetVal()
		}
	}
	if state["last-epoch"] == nil {
		return nil
	}
	tables, err := tablesOf([]*gpb.Notification{results})
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	head := struct {
		Epoch   uint64       `json:"epoch"`
		Quality string       `json:"quality"`
		Problem string       `json:"problem,omitempty"`
		Results []*resultRow `json:"results"`
	}{Epoch: state["last-epoch"].GetUintVal(), Quality: state["quality"].GetStringVal(),
		Problem: state["problem"].GetStringVal(),
		Results: []*resultRow{}}
	for _, t := range tables {
		head.Results = append(head.Results, t.Rows...)
	}
	if v.json {
		return json.NewEncoder(w).Encode(head)
	}
	note := "exact"
	if head.Quality != "EXACT" {
		note = "not exact: " + head.Problem
	}
	fmt.Fprintf(w, "epoch %d, %d results, %s\n", head.Epoch, len(head.Results), note)
	for _, row := range head.Results {
		fmt.Fprintf(w, "  %v\n", row.Values["tuple"])
	}
	return nil
}

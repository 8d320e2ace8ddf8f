// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/sketch/flow"
)

// View is one device's results in one dimension.
type View struct {
	Device    string `json:"device"`
	Dimension string `json:"dimension"`
}

// Summary is what a view says of an epoch as a whole.
type Summary struct {
	Epoch        uint64
	Packets      uint64
	Distinct     float64
	Entropy      float64
	SecondMoment float64
	Status       string
}

// Heavy is a heavy hitter as published.
type Heavy struct {
	Epoch   uint64
	Packets float64
}

// Change is a heavy change as published.
type Change struct {
	Epoch uint64
	Delta float64
}

// Results are UnivMon's newest results, as read over gNMI.
type Results struct {
	Summaries map[View]*Summary
	Heavy     map[View]map[flow.Key]*Heavy
	Changes   map[View]map[flow.Key]*Change
	Victims   map[string]map[string]float64 // device, destination: distinct sources
	At        map[View]time.Time            // time of each summary: the end of its epoch
}

// client reads a collector's gNMI server as any other client would.
type client struct {
	conn *grpc.ClientConn
	gnmi gnmi.GNMIClient
}

func dial(addr string) (*client, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, fmt.Errorf("scenario: gNMI %s: %w", addr, err)
	}
	return &client{conn, gnmi.NewGNMIClient(conn)}, nil
}

func (c *client) Close() error { return c.conn.Close() }

func path(elems ...string) *gnmi.Path {
	p := &gnmi.Path{}
	for _, e := range elems {
		p.Elem = append(p.Elem, &gnmi.PathElem{Name: e})
	}
	return p
}

// subscribe opens a subscription to the paths.
func (c *client) subscribe(ctx context.Context, mode gnmi.SubscriptionList_Mode, paths ...*gnmi.Path) (grpc.BidiStreamingClient[gnmi.SubscribeRequest, gnmi.SubscribeResponse], error) {
	stream, err := c.gnmi.Subscribe(ctx)
	if err != nil {
		return nil, fmt.Errorf("scenario: gNMI subscribe: %w", err)
	}
	list := &gnmi.SubscriptionList{Mode: mode, Encoding: gnmi.Encoding_PROTO}
	for _, p := range paths {
		list.Subscription = append(list.Subscription, &gnmi.Subscription{Path: p, Mode: gnmi.SubscriptionMode_ON_CHANGE})
	}
	if err := stream.Send(&gnmi.SubscribeRequest{Request: &gnmi.SubscribeRequest_Subscribe{Subscribe: list}}); err != nil {
		return nil, fmt.Errorf("scenario: gNMI subscribe: %w", err)
	}
	return stream, nil
}

// univmon reads all of UnivMon's results once.
func (c *client) univmon(ctx context.Context) (*Results, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.subscribe(ctx, gnmi.SubscriptionList_ONCE, path("univmon"))
	if err != nil {
		return nil, err
	}
	r := &Results{
		Summaries: map[View]*Summary{}, Heavy: map[View]map[flow.Key]*Heavy{},
		Changes: map[View]map[flow.Key]*Change{}, Victims: map[string]map[string]float64{},
		At: map[View]time.Time{},
	}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, fmt.Errorf("scenario: gNMI: %w", err)
		}
		if resp.GetSyncResponse() {
			continue
		}
		n := resp.GetUpdate()
		for _, u := range n.GetUpdate() {
			elems := slices.Concat(n.GetPrefix().GetElem(), u.GetPath().GetElem())
			if err := r.take(elems, u.GetVal(), time.Unix(0, n.GetTimestamp())); err != nil {
				return nil, err
			}
		}
	}
}

// number returns a numeric value, and the text of another.
func number(v *gnmi.TypedValue) (float64, string) {
	switch x := v.GetValue().(type) {
	case *gnmi.TypedValue_UintVal:
		return float64(x.UintVal), ""
	case *gnmi.TypedValue_IntVal:
		return float64(x.IntVal), ""
	case *gnmi.TypedValue_DoubleVal:
		return x.DoubleVal, ""
	case *gnmi.TypedValue_StringVal:
		return 0, x.StringVal
	}
	return 0, ""
}

// take files one leaf: /univmon/LISTS/LIST[keys]/state/LEAF.
func (r *Results) take(elems []*gnmi.PathElem, v *gnmi.TypedValue, at time.Time) error {
	if len(elems) != 5 || elems[3].GetName() != "state" {
		return nil // key leaves beside the state container
	}
	list, keys, leaf := elems[2].GetName(), elems[2].GetKey(), elems[4].GetName()
	x, text := number(v)
	view := View{keys["device"], keys["dimension"]}
	switch list {
	case "summary":
		s := entry(r.Summaries, view)
		r.At[view] = at
		switch leaf {
		case "epoch":
			s.Epoch = uint64(x)
		case "packets":
			s.Packets = uint64(x)
		case "distinct-flows":
			s.Distinct = x
		case "entropy":
			s.Entropy = x
		case "second-moment":
			s.SecondMoment = x
		case "status":
			s.Status = text
		}
	case "heavy-hitter", "heavy-change":
		fields, err := flow.ParseFields(view.Dimension)
		if err != nil {
			return fmt.Errorf("scenario: %s[dimension=%s]: %w", list, view.Dimension, err)
		}
		key, err := flow.Parse(fields, keys["flow"])
		if err != nil {
			return fmt.Errorf("scenario: %s[flow=%s]: %w", list, keys["flow"], err)
		}
		if list == "heavy-hitter" {
			h := entry(inner(r.Heavy, view), key)
			switch leaf {
			case "epoch":
				h.Epoch = uint64(x)
			case "packets":
				h.Packets = x
			}
			return nil
		}
		c := entry(inner(r.Changes, view), key)
		switch leaf {
		case "epoch":
			c.Epoch = uint64(x)
		case "delta":
			c.Delta = x
		}
	case "ddos-victim":
		if leaf == "distinct-sources" {
			inner(r.Victims, keys["device"])[keys["destination"]] = x
		}
	}
	return nil
}

// entry returns m[k], made when it is not there.
func entry[K comparable, V any](m map[K]*V, k K) *V {
	v := m[k]
	if v == nil {
		v = new(V)
		m[k] = v
	}
	return v
}

func inner[A, B comparable, V any](m map[A]map[B]V, a A) map[B]V {
	v := m[a]
	if v == nil {
		v = map[B]V{}
		m[a] = v
	}
	return v
}

// epochs calls seen when the first result of an epoch arrives, until ctx ends.
func (c *client) epochs(ctx context.Context, seen func(number uint64, end time.Time)) error {
	stream, err := c.subscribe(ctx, gnmi.SubscriptionList_STREAM, path("univmon", "summaries", "summary", "state", "epoch"))
	if err != nil {
		return err
	}
	var newest uint64
	for {
		resp, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("scenario: gNMI: %w", err)
		}
		for _, u := range resp.GetUpdate().GetUpdate() {
			if x, text := number(u.GetVal()); text == "" && uint64(x) > newest {
				newest = uint64(x)
				seen(newest, time.Unix(0, resp.GetUpdate().GetTimestamp()))
			}
		}
	}
}

// String returns "leaf1 src".
func (v View) String() string { return v.Device + " " + v.Dimension }

// percent formats a share.
func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 2, 64) + " %" }

// SPDX-License-Identifier: Apache-2.0

// Package gnmiread reads a collector's gNMI server as any other client would.
package gnmiread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/lab/scenario/score"
)

// Client is a connection to a collector's gNMI server.
type Client struct {
	conn *grpc.ClientConn
	gnmi gnmi.GNMIClient
}

// Dial returns a client of the server at an address. It does not wait for a connection.
func Dial(addr string) (*Client, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, fmt.Errorf("scenario: gNMI %s: %w", addr, err)
	}
	return &Client{conn, gnmi.NewGNMIClient(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Path returns the path of element names without keys.
func Path(elems ...string) *gnmi.Path {
	p := &gnmi.Path{}
	for _, e := range elems {
		p.Elem = append(p.Elem, &gnmi.PathElem{Name: e})
	}
	return p
}

// Subscribe opens a subscription to paths of a target; an empty name is the collector itself.
func (c *Client) Subscribe(ctx context.Context, mode gnmi.SubscriptionList_Mode, target string, paths ...*gnmi.Path,
) (grpc.BidiStreamingClient[gnmi.SubscribeRequest, gnmi.SubscribeResponse], error) {
	stream, err := c.gnmi.Subscribe(ctx)
	if err != nil {
		return nil, fmt.Errorf("scenario: gNMI subscribe: %w", err)
	}
	list := &gnmi.SubscriptionList{Mode: mode, Encoding: gnmi.Encoding_PROTO, Prefix: &gnmi.Path{Target: target}}
	for _, p := range paths {
		list.Subscription = append(list.Subscription,
			&gnmi.Subscription{Path: p, Mode: gnmi.SubscriptionMode_ON_CHANGE})
	}
	if err := stream.Send(
		&gnmi.SubscribeRequest{Request: &gnmi.SubscribeRequest_Subscribe{Subscribe: list}}); err != nil {
		return nil, fmt.Errorf("scenario: gNMI subscribe: %w", err)
	}
	return stream, nil
}

// Leaves reads a subtree of the collector once.
func (c *Client) Leaves(ctx context.Context, elems ...string) ([]score.Leaf, error) {
	return c.Read(ctx, "", Path(elems...))
}

// Read reads a path of a target once.
func (c *Client) Read(ctx context.Context, target string, p *gnmi.Path) ([]score.Leaf, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.Subscribe(ctx, gnmi.SubscriptionList_ONCE, target, p)
	if err != nil {
		return nil, err
	}
	var out []score.Leaf
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("scenario: gNMI: %w", err)
		}
		n := resp.GetUpdate()
		at := time.Unix(0, n.GetTimestamp())
		for _, u := range n.GetUpdate() {
			l := score.Leaf{Path: slices.Concat(n.GetPrefix().GetElem(), u.GetPath().GetElem()), At: at}
			l.Value.Number, l.Value.Text = number(u.GetVal())
			out = append(out, l)
		}
	}
}

// number returns a numeric value, with a boolean as 0 or 1; for any other value it returns the
// text.
func number(v *gnmi.TypedValue) (float64, string) {
	switch x := v.GetValue().(type) {
	case *gnmi.TypedValue_UintVal:
		return float64(x.UintVal), ""
	case *gnmi.TypedValue_IntVal:
		return float64(x.IntVal), ""
	case *gnmi.TypedValue_DoubleVal:
		return x.DoubleVal, ""
	case *gnmi.TypedValue_BoolVal:
		if x.BoolVal {
			return 1, ""
		}
		return 0, ""
	case *gnmi.TypedValue_StringVal:
		return 0, x.StringVal
	}
	return 0, ""
}

// Epochs calls seen when the first result of an epoch arrives, shown by the leaves at marker,
// until ctx ends.
func (c *Client) Epochs(ctx context.Context, marker []string, seen func(number uint64, end time.Time)) error {
	stream, err := c.Subscribe(ctx, gnmi.SubscriptionList_STREAM, "", Path(marker...))
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

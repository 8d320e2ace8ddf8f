// SPDX-License-Identifier: Apache-2.0

package devconfig

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	extpb "github.com/openconfig/gnmi/proto/gnmi_ext"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/yang"
)

// read are the paths that are read from a device. A device that refuses one of them is read without
// it.
var read = []string{
	"/interfaces/interface/config", "/interfaces/interface/state/name", "/interfaces/interface/state/id",
	"/interfaces/interface/state/enabled", "/interfaces/interface/state/description", "/components/component/config",
	"/components/component/state/type", "/components/component/integrated-circuit", "/lldp/config", "/lldp/state/enabled",
	"/lldp/interfaces/interface/config", "/lldp/interfaces/interface/state/enabled",
}

// form is a way to write a leaf's value in a Set. Servers accept different forms.
type form uint8

// The forms of values, in the order in which they are tried.
const (
	bare    form = iota // a JSON value at the leaf
	wrapped             // a JSON object with the leaf's qualified name, as SONiC takes it
	typed               // a protobuf value
	plain               // a JSON value in the encoding JSON, the only one of some devices

	forms = iota
)

// client is a connection with a device's gNMI server.
type client struct {
	conn    *grpc.ClientConn
	api     gpb.GNMIClient
	schema  *yang.Schema
	timeout time.Duration // limit of the time of a call
	dials   *atomic.Int32
	device  string // host:port, for errors
	path    southbound.Form
	// afterSync is how long the device may take to end a subscription after its sync_response.
	afterSync time.Duration
	getOnly   *bool // whether the device does not end a ONCE subscription
}

// dialer opens connections; southbound.Endpoint.Dial is one.
type dialer func(...grpc.DialOption) (*grpc.ClientConn, error)

// open returns a client. The first call connects.
func open(dial dialer, address string, schema *yang.Schema, timeout time.Duration) (*client, error) {
	dials := new(atomic.Int32)
	conn, err := dial(grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
		if err == nil {
			dials.Add(1)
		}
		return c, err
	}))
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, api: gpb.NewGNMIClient(conn), schema: schema, timeout: timeout, dials: dials,
		device: address, path: southbound.DefaultForm(), getOnly: new(bool)}, nil
}

// pathOf returns a path of this package in the form that the device understands.
func (c *client) pathOf(text string) *gpb.Path { return c.path.Path(c.schema, gnmiPath(text)) }

func (c *client) close() { _ = c.conn.Close() }

// connections is how often a connection was established.
func (c *client) connections() int32 { return c.dials.Load() }

// read reads the device. It tries forms of requests until the device sends values.
func (c *client) read(ctx context.Context) (*Snapshot, error) {
	known := c.path
	var refused error
	for _, c.path = range southbound.Forms(known) {
		s, err := c.readForm(ctx)
		switch {
		case s == nil:
			return nil, err
		case s.leaves > 0: // some paths may be missing, because the device refuses them
			return s, nil
		}
		refused = cmp.Or(refused, err)
	}
	c.path = known
	if refused == nil {
		refused = errors.New("the device has no value of any interface or component")
	}
	return nil, fmt.Errorf("gNMI of %s: the configuration cannot be read: %w", c.device, refused)
}

// readForm reads with one form of requests. If the connection has failed, it returns no snapshot.
// If the device sent no leaves, it returns an empty snapshot, and the reason if the device gave
// one.
func (c *client) readForm(ctx context.Context) (*Snapshot, error) {
	s := NewSnapshot()
	var err error
	if !*c.getOnly {
		err = c.once(ctx, s, read...)
	}
	switch {
	case err == nil && s.leaves > 0:
		return s, nil
	case southbound.EncodingRefused(err):
		return NewSnapshot(), err
	case status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil:
		*c.getOnly = true // the values received so far may be incomplete, so all paths are read again with Get
	case err != nil && !refusal(err):
		return nil, err
	}
	// The device refuses one of the paths, or sends no values because of one of them: read each
	// path by itself.
	s = NewSnapshot()
	for _, path := range read {
		var one error
		if !*c.getOnly {
			one = c.once(ctx, s, path)
		}
		if *c.getOnly || refusal(one) {
			one = c.get(ctx, s, path)
		}
		if one != nil && !refusal(one) {
			return nil, one
		}
		err = cmp.Or(err, one)
	}
	return s, err
}

// refusal reports whether an error concerns a path or a request, not the connection.
func refusal(err error) bool {
	switch status.Code(err) {
	case codes.OK, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unauthenticated,
		codes.ResourceExhausted:
		return false
	}
	_, ok := status.FromError(err)
	return ok && err != nil
}

// readTimeouts is how many timeouts of a call a reading may take, because a device may have many
// interfaces.
const readTimeouts = 6

// once reads paths with a subscription that ends by itself. NX-OS sends values after its
// sync_response, and other servers leave the stream open: once waits a limited time (afterSync) for
// the end of the stream.
func (c *client) once(ctx context.Context, s *Snapshot, paths ...string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeouts*c.timeout)
	defer cancel()
	list := &gpb.SubscriptionList{Mode: gpb.SubscriptionList_ONCE, Encoding: c.path.Encoding, Prefix: c.path.Prefix()}
	for _, p := range paths {
		list.Subscription = append(list.Subscription, &gpb.Subscription{Path: c.pathOf(p)})
	}
	stream, err := c.api.Subscribe(ctx)
	if err == nil {
		err = stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	synced := false
	for {
		resp, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF), synced && status.Code(err) == codes.Canceled:
			return nil
		case err != nil:
			return err
		case resp.GetSyncResponse() && !synced:
			synced = true
			defer time.AfterFunc(c.afterSync, cancel).Stop()
		}
		if err := s.add(c.schema, resp.GetUpdate()); err != nil {
			return err
		}
	}
}

// get reads a path with Get, for servers without ONCE subscriptions. Junos has no Get of type ALL.
func (c *client) get(ctx context.Context, s *Snapshot, path string) error {
	err := c.getType(ctx, s, path, gpb.GetRequest_ALL)
	if !refusal(err) {
		return err
	}
	for _, t := range []gpb.GetRequest_DataType{gpb.GetRequest_CONFIG, gpb.GetRequest_STATE} {
		switch one := c.getType(ctx, s, path, t); {
		case one == nil:
			err = nil
		case !refusal(one):
			return one
		}
	}
	return err
}

func (c *client) getType(ctx context.Context, s *Snapshot, path string, t gpb.GetRequest_DataType) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeouts*c.timeout)
	defer cancel()
	resp, err := c.api.Get(ctx, &gpb.GetRequest{Prefix: c.path.Prefix(), Path: []*gpb.Path{c.pathOf(path)}, Type: t,
		Encoding: c.path.Encoding})
	if err != nil {
		return err
	}
	for _, n := range resp.GetNotification() {
		if err := s.add(c.schema, n); err != nil {
			return err
		}
	}
	return nil
}

// hasCommit reports whether the device takes back changes that are not confirmed. It sends a Set
// without changes that confirms a commit that does not exist: a device that supports the commit
// extension refuses this Set.
func (c *client) hasCommit(ctx context.Context, id string) (bool, error) {
	err := c.call(ctx, &gpb.SetRequest{Extension: []*extpb.Extension{confirm(id)}})
	switch status.Code(err) {
	case codes.FailedPrecondition, codes.InvalidArgument:
		return true, nil
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return false, err
	}
	return false, nil
}

func confirm(id string) *extpb.Extension {
	return &extpb.Extension{Ext: &extpb.Extension_Commit{Commit: &extpb.Commit{Id: id,
		Action: &extpb.Commit_Confirm{Confirm: &extpb.CommitConfirm{}}}}}
}

// confirm makes a commit permanent, and cancel takes it back.
func (c *client) confirm(ctx context.Context, id string) error {
	return c.call(ctx, &gpb.SetRequest{Extension: []*extpb.Extension{confirm(id)}})
}

func (c *client) cancel(ctx context.Context, id string) error {
	return c.call(ctx, &gpb.SetRequest{Extension: []*extpb.Extension{{Ext: &extpb.Extension_Commit{
		Commit: &extpb.Commit{Id: id, Action: &extpb.Commit_Cancel{Cancel: &extpb.CommitCancel{}}}}}}})
}

// set sends changes in one transaction. With a commit id, the device takes them back after rollback
// unless they are confirmed.
func (c *client) set(ctx context.Context, changes []Change, f form, commit string, rollback time.Duration) error {
	req, err := c.request(changes, f)
	if err != nil {
		return err
	}
	if commit != "" {
		req.Extension = append(req.Extension, &extpb.Extension{Ext: &extpb.Extension_Commit{Commit: &extpb.Commit{
			Id: commit, Action: &extpb.Commit_Commit{Commit: &extpb.CommitRequest{
				RollbackDuration: durationpb.New(rollback)}}}}})
	}
	return c.call(ctx, req)
}

func (c *client) call(ctx context.Context, req *gpb.SetRequest) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, err := c.api.Set(ctx, req)
	return err
}

// request returns a SetRequest with the changes. No other code makes one with values. It fails if a
// path is not in the table paths, so that only single leaves are ever set, or if a value does not
// fit its leaf.
func (c *client) request(changes []Change, f form) (*gpb.SetRequest, error) {
	req := &gpb.SetRequest{Prefix: c.path.Prefix()}
	entries := map[string]bool{}
	for _, change := range changes {
		l, err := change.leaf()
		if err != nil {
			return nil, err
		}
		if change.Before != nil && (change.After == nil || l.setting().identity) {
			req.Delete = append(req.Delete, c.pathOf(change.Path))
		}
		if change.After == nil {
			continue
		}
		if entry := change.Entry; entry != "" && entry == l.entry() && !entries[entry] {
			entries[entry] = true
			req.Update = append(req.Update, &gpb.Update{Path: c.pathOf(entry), Val: value(entry, l.name, true, false,
				false, f)})
		}
		s := l.setting()
		if _, err := strconv.ParseUint(*change.After, 10, 64); s.number && err != nil {
			return nil, fmt.Errorf("%s cannot be set: %w", change.Path, err)
		}
		req.Update = append(req.Update, &gpb.Update{Path: c.pathOf(change.Path), Val: value(change.Path, *change.After,
			s.text, s.number, s.wide, f)})
	}
	return req, nil
}

// value writes a value of a leaf.
func value(path, v string, text, number, wide bool, f form) *gpb.TypedValue {
	if f == typed {
		switch {
		case text:
			return &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: v}}
		case number:
			n, _ := strconv.ParseUint(v, 10, 64) // request has checked the number
			return &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: n}}
		}
		return &gpb.TypedValue{Value: &gpb.TypedValue_BoolVal{BoolVal: v == "true"}}
	}
	data := []byte(v)
	if text || wide { // RFC 7951: numbers of 64 bits are strings
		data, _ = json.Marshal(v) // encoding a string never fails
	}
	if f == wrapped {
		name := path[strings.LastIndexByte(path, '/')+1:]
		data = slices.Concat([]byte(`{"`+moduleOf(path, name)+":"+name+`":`), data, []byte("}"))
	}
	if f == plain {
		return &gpb.TypedValue{Value: &gpb.TypedValue_JsonVal{JsonVal: data}}
	}
	return &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: data}}
}

// moduleOf is the OpenConfig module that defines a leaf.
func moduleOf(path, name string) string {
	switch {
	case name == "node-id", name == "id":
		return "openconfig-p4rt"
	case strings.HasPrefix(path, "/components"):
		return "openconfig-platform"
	case strings.HasPrefix(path, "/lldp"):
		return "openconfig-lldp"
	}
	return "openconfig-interfaces"
}

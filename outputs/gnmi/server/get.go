// SPDX-License-Identifier: Apache-2.0

// Get: a snapshot, as leaves or as JSON trees.

package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// Get replies with one Notification for each path, or several if their prefixes differ or, with
// PROTO, the timestamps of the leaves. All Notifications come from the same version of the store.
func (s *Server) Get(ctx context.Context, req *gpb.GetRequest) (*gpb.GetResponse, error) {
	s.stats.requests.Add(1)
	c := s.caller(ctx)
	if err := s.gets.take(c); err != nil {
		return nil, s.bounded(Get, c, err)
	}
	defer s.gets.release(c)
	resp, err := s.get(ctx, c, req)
	if err != nil {
		return nil, s.refused(err)
	}
	return resp, nil
}

func (s *Server) get(ctx context.Context, c caller, req *gpb.GetRequest) (*gpb.GetResponse, error) {
	if err := checkEncoding(req.GetEncoding()); err != nil {
		return nil, err
	}
	switch req.GetType() {
	case gpb.GetRequest_ALL, gpb.GetRequest_CONFIG, gpb.GetRequest_STATE, gpb.GetRequest_OPERATIONAL:
	default:
		return nil, invalid("Get: type %d is not a gNMI type", int32(req.GetType()))
	}
	paths := req.GetPath()
	if len(paths) == 0 {
		if len(req.GetPrefix().GetElem()) == 0 {
			return nil, invalid("Get: the request has no path; a path without elements is the path of everything")
		}
		paths = []*gpb.Path{{}}
	}
	if len(paths) > s.opts.MaxPaths {
		return nil, status.Errorf(codes.ResourceExhausted, "Get: %d paths; expected at most %d", len(paths),
			s.opts.MaxPaths)
	}
	schema := s.opts.Schema()
	f := filter{kind: req.GetType()}
	var err error
	if f.models, err = models(schema, req.GetUseModels()); err != nil {
		return nil, err
	}
	r, err := s.resolver(schema, c, req.GetPrefix(), req.GetExtension())
	if err != nil {
		return nil, err
	}
	resolvedPaths := make([]*resolved, 0, len(paths))
	for _, p := range paths {
		a, err := r.resolve(p)
		if err != nil {
			return nil, err
		}
		resolvedPaths = append(resolvedPaths, a)
	}
	s.refresh()
	g := &getter{server: s, view: s.opts.Store.View(), encoding: req.GetEncoding(), filter: f,
		ietf: req.GetEncoding() == gpb.Encoding_JSON_IETF}
	resp := &gpb.GetResponse{}
	for _, a := range resolvedPaths {
		notes, err := g.answer(ctx, a)
		if err != nil {
			return nil, err
		}
		resp.Notification = append(resp.Notification, notes...)
	}
	return resp, nil
}

// getter builds the reply to one Get.
type getter struct {
	server   *Server
	view     *store.View
	encoding gpb.Encoding
	ietf     bool
	filter   filter
	leaves   int
}

// answer returns the Notifications of one path: one or, with target "*", one for each target.
func (g *getter) answer(ctx context.Context, a *resolved) ([]*gpb.Notification, error) {
	notes, rows, err := g.notifications(ctx, a, g.view)
	if err != nil || len(notes) > 0 {
		return notes, err
	}
	if t := a.query.Target; t != "" && t != "*" && !g.view.HasTarget(t) {
		return nil, status.Errorf(codes.NotFound, "Get: there is no target %q; there are %q", clip(t),
			g.server.opts.Store.Targets())
	}
	noValue := status.Errorf(codes.NotFound, "Get: %s has no value (yet)", short(pathText(a)))
	row, single := g.server.opts.Store.WatchOf(a.query)
	if rows > 0 || !single || g.server.opts.Querier == nil {
		return nil, noValue
	}
	view, err := g.query(ctx, row)
	if err != nil {
		reason := status.Convert(err)
		return nil, status.Error(reason.Code(), short(fmt.Sprintf("Get: %s has no value (yet): %s", pathText(a),
			reason.Message())))
	}
	notes, _, err = g.notifications(ctx, a, view)
	if err == nil && len(notes) == 0 {
		err = noValue
	}
	return notes, err
}

// query computes a row that is not in the store.
func (g *getter) query(ctx context.Context, row store.Watch) (*store.View, error) {
	list, err := g.server.opts.Schema().List(row.List)
	if err != nil {
		return nil, err
	}
	keys := map[string]string{}
	for i, k := range list.Keys {
		keys[k.Name] = row.Keys[i]
	}
	return g.server.opts.Querier.Query(ctx, row.Target, row.List, keys)
}

// notifications returns the Notifications of a path from a view, and the number of rows found.
func (g *getter) notifications(ctx context.Context, a *resolved,
	view *store.View,
) (out []*gpb.Notification, rows int, err error) {
	var made []*collector
	var at map[int64]*collector // for the current target: the collector of each time
	target := ""
	for row, meta := range view.Rows(a.query) {
		rows++
		if at == nil || row.Entry.Target != target {
			target = row.Entry.Target
			at = map[int64]*collector{}
		}
		g.row(row, &meta, func(time int64) *collector {
			if g.encoding != gpb.Encoding_PROTO {
				time = 0 // a tree of JSON has one Notification, with the time of its newest leaf
			}
			if at[time] == nil {
				at[time] = g.collect(a, target)
				made = append(made, at[time])
			}
			return at[time]
		})
		if err := ctx.Err(); err != nil {
			return nil, 0, status.FromContextError(err).Err()
		}
		if g.leaves > g.server.opts.MaxGetLeaves {
			return nil, 0, status.Errorf(codes.ResourceExhausted,
				"Get: %s has more than %d leaves; request fewer, or use Subscribe with mode ONCE",
				pathText(a), g.server.opts.MaxGetLeaves)
		}
	}
	for _, c := range made {
		if len(c.note.Update) > 0 {
			c.finish()
			out = append(out, c.note)
		}
	}
	return out, rows, nil
}

func pathText(a *resolved) string {
	return yang.PathString(slices.Concat(a.prefix.GetElem(), a.path.GetElem()))
}

// collector builds a Notification of one path and target.
type collector struct {
	g    *getter
	note *gpb.Notification
	// at is the number of elements of a leaf's path that form the path of its update: the length of
	// the request's path, or all elements.
	at     int
	update map[string]*treeUpdate
}

// treeUpdate is an update whose value is being built.
type treeUpdate struct {
	update *gpb.Update
	root   *tree
}

func (g *getter) collect(a *resolved, target string) *collector {
	head := reflectPrefix(&gpb.Path{Origin: a.origin, Target: a.prefix.GetTarget()})
	if head.GetTarget() == "*" && !g.server.opts.AnyTarget {
		head.Target = target
	}
	c := &collector{g: g, note: &gpb.Notification{Prefix: head}, at: len(a.query.Elems),
		update: map[string]*treeUpdate{}}
	for _, e := range a.query.Elems {
		if e.Name == "..." { // matches at several depths
			c.at = 1 << 20
		}
	}
	if g.encoding == gpb.Encoding_PROTO {
		c.at = 1 << 20
	}
	return c
}

// row adds a row's leaves to the answer, by their time stamps.
func (g *getter) row(row *store.Row, meta *store.Meta, collector func(time int64) *collector) {
	info := g.server.info(row.List)
	n := len(row.List.Elems)
	for i, v := range row.Values {
		f := &info.leaves[i]
		if v.Absent() || !g.filter.matches(f) {
			continue
		}
		g.leaves++
		time := meta.LeafTime(i)
		c := collector(time)
		c.note.Timestamp = max(c.note.Timestamp, time)
		leaf := row.List.Leaves[i].Path
		full := n + len(leaf)
		at := min(c.at, full)
		elem := func(j int) (string, string) { // name and module
			if j < n {
				return row.List.Elems[j], info.modules[j]
			}
			return leaf[j-n], f.own[j-n]
		}
		path := &gpb.Path{Elem: make([]*gpb.PathElem, 0, at)}
		var id strings.Builder
		for j := range at {
			name, _ := elem(j)
			pe := &gpb.PathElem{Name: name}
			id.WriteString("/" + name)
			if j < n {
				pe.Key = keysAt(row.Entry, j, &id)
			}
			path.Elem = append(path.Elem, pe)
		}
		u := c.update[id.String()]
		if u == nil {
			u = &treeUpdate{update: &gpb.Update{Path: path}, root: &tree{}}
			c.update[id.String()] = u
			c.note.Update = append(c.note.Update, u.update)
		}
		if g.encoding == gpb.Encoding_PROTO {
			u.update.Val = protoValue(f, v)
			continue
		}
		t := u.root
		for j := at; j < full; j++ {
			name, module := elem(j)
			t = t.child(name)
			t.name, t.module = name, module
			if j < n {
				var key strings.Builder
				if keysAt(row.Entry, j, &key) != nil {
					t.list = true
					t = t.child(key.String())
					t.module = module
				}
			}
		}
		t.value = appendJSON(nil, g.ietf, f, v)
	}
}

// finish encodes the trees as values.
func (c *collector) finish() {
	if c.g.encoding == gpb.Encoding_PROTO {
		return
	}
	for _, u := range c.update {
		raw := u.root.append(nil, c.g.ietf, "")
		if c.g.ietf {
			u.update.Val = &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: raw}}
		} else {
			u.update.Val = &gpb.TypedValue{Value: &gpb.TypedValue_JsonVal{JsonVal: raw}}
		}
	}
}

// keysAt returns the keys of one element of an entry's path, and writes them to id. It returns nil
// if the element has no keys.
func keysAt(e *store.Entry, elem int, id *strings.Builder) map[string]string {
	var keys map[string]string
	for k := range e.List.Keys {
		if e.List.Keys[k].Elem != elem {
			continue
		}
		if keys == nil {
			keys = map[string]string{}
		}
		v := strings.ToValidUTF8(e.Keys[k].String(), "\ufffd")
		keys[e.List.Keys[k].Name] = v
		id.WriteByte('[')
		id.WriteString(v)
		id.WriteByte(0)
	}
	return keys
}

// protoValue returns a value as a scalar.
func protoValue(f *leafInfo, v store.Value) *gpb.TypedValue {
	switch v.Kind() {
	case table.Uint64:
		return &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: v.Uint()}}
	case table.Int64:
		return &gpb.TypedValue{Value: &gpb.TypedValue_IntVal{IntVal: v.Int()}}
	case table.Float64:
		return &gpb.TypedValue{Value: &gpb.TypedValue_DoubleVal{DoubleVal: rounded(f, v)}}
	case table.Bool:
		return &gpb.TypedValue{Value: &gpb.TypedValue_BoolVal{BoolVal: v.Bool()}}
	}
	return &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: strings.ToValidUTF8(v.Text(), "\ufffd")}}
}

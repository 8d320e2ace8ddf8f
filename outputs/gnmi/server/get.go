// SPDX-License-Identifier: Apache-2.0

// Get: a snapshot, as leaves or as JSON trees.

package server

import (
	"context"
	"slices"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// Get answers with one Notification for each path, or several where their prefixes
// must differ. All of them are from one moment.
func (s *Server) Get(ctx context.Context, req *gpb.GetRequest) (*gpb.GetResponse, error) {
	s.stats.requests.Add(1)
	resp, err := s.get(ctx, req)
	if err != nil {
		return nil, s.refused(err)
	}
	return resp, nil
}

func (s *Server) get(ctx context.Context, req *gpb.GetRequest) (*gpb.GetResponse, error) {
	if err := s.authorize(ctx); err != nil {
		return nil, err
	}
	if err := checkEncoding(req.GetEncoding()); err != nil {
		return nil, err
	}
	switch req.GetType() {
	case gpb.GetRequest_ALL, gpb.GetRequest_CONFIG, gpb.GetRequest_STATE, gpb.GetRequest_OPERATIONAL:
	default:
		return nil, invalid("Get: type %d is none that gNMI has", int32(req.GetType()))
	}
	paths := req.GetPath()
	if len(paths) == 0 {
		if len(req.GetPrefix().GetElem()) == 0 {
			return nil, invalid("Get: the request has no path; the path of everything is one without elements")
		}
		paths = []*gpb.Path{{}}
	}
	if len(paths) > s.opts.MaxPaths {
		return nil, status.Errorf(codes.ResourceExhausted, "Get: %d paths; at most %d are taken", len(paths), s.opts.MaxPaths)
	}
	schema := s.opts.Schema()
	f := filter{kind: req.GetType()}
	var err error
	if f.models, err = models(schema, req.GetUseModels()); err != nil {
		return nil, err
	}
	r, err := s.resolver(schema, req.GetPrefix(), req.GetExtension())
	if err != nil {
		return nil, err
	}
	asks := make([]*ask, 0, len(paths))
	for _, p := range paths {
		a, err := r.resolve(p)
		if err != nil {
			return nil, err
		}
		asks = append(asks, a)
	}
	s.refresh()
	g := &getter{server: s, view: s.opts.Store.View(), encoding: req.GetEncoding(), filter: f, ietf: req.GetEncoding() == gpb.Encoding_JSON_IETF}
	resp := &gpb.GetResponse{}
	for _, a := range asks {
		notes, err := g.answer(ctx, a)
		if err != nil {
			return nil, err
		}
		resp.Notification = append(resp.Notification, notes...)
	}
	return resp, nil
}

// getter answers the paths of one Get.
type getter struct {
	server   *Server
	view     *store.View
	encoding gpb.Encoding
	ietf     bool
	filter   filter
	leaves   int
}

// answer returns the Notifications of one path: one, or with target "*" one for
// each target.
func (g *getter) answer(ctx context.Context, a *ask) ([]*gpb.Notification, error) {
	var made []*collector
	var c *collector
	target := ""
	for row, meta := range g.view.Rows(a.query) {
		if c == nil || row.Entry.Target != target {
			target = row.Entry.Target
			c = g.collect(a, target)
			made = append(made, c)
		}
		c.row(row, meta)
		if err := ctx.Err(); err != nil {
			return nil, status.FromContextError(err).Err()
		}
		if g.leaves > g.server.opts.MaxGetLeaves {
			return nil, status.Errorf(codes.ResourceExhausted,
				"Get: %s has more than %d leaves; ask for less, or use Subscribe with mode ONCE",
				pathText(a), g.server.opts.MaxGetLeaves)
		}
	}
	var out []*gpb.Notification
	for _, c := range made {
		if len(c.note.Update) > 0 {
			c.finish()
			out = append(out, c.note)
		}
	}
	if len(out) == 0 {
		if t := a.query.Target; t != "" && t != "*" && !g.view.HasTarget(t) {
			return nil, status.Errorf(codes.NotFound, "Get: there is no target %q; there are %q", clip(t), g.server.opts.Store.Targets())
		}
		return nil, status.Errorf(codes.NotFound, "Get: %s has no value (yet)", short(pathText(a)))
	}
	return out, nil
}

func pathText(a *ask) string {
	return yang.PathString(slices.Concat(a.prefix.GetElem(), a.path.GetElem()))
}

// collector makes the Notification of one path and target.
type collector struct {
	g    *getter
	note *gpb.Notification
	// at is how many elements of a leaf's path make the path of its update: those
	// that the request's path has, or all of them.
	at     int
	update map[string]*treeUpdate
}

// treeUpdate is one update whose value is still collected.
type treeUpdate struct {
	update *gpb.Update
	root   *tree
}

func (g *getter) collect(a *ask, target string) *collector {
	head := reflectPrefix(&gpb.Path{Origin: a.origin, Target: a.prefix.GetTarget()})
	if head.GetTarget() == "*" && !g.server.opts.AnyTarget {
		head.Target = target
	}
	c := &collector{g: g, note: &gpb.Notification{Prefix: head}, at: len(a.query.Elems), update: map[string]*treeUpdate{}}
	for _, e := range a.query.Elems {
		if e.Name == "..." { // fits at several depths
			c.at = 1 << 20
		}
	}
	if g.encoding == gpb.Encoding_PROTO {
		c.at = 1 << 20
	}
	return c
}

// row adds a row's leaves.
func (c *collector) row(row *store.Row, meta store.Meta) {
	info := c.g.server.info(row.List)
	if ts := meta.Time.UnixNano(); ts > c.note.Timestamp {
		c.note.Timestamp = ts
	}
	n := len(row.List.Elems)
	for i, v := range row.Values {
		f := &info.leaves[i]
		if v.Absent() || !c.g.filter.wants(f) {
			continue
		}
		c.g.leaves++
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
		if c.g.encoding == gpb.Encoding_PROTO {
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
		t.value = appendJSON(nil, c.g.ietf, f, v)
	}
}

// finish writes the trees out as values.
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

// keysAt returns the keys of one element of an entry's path, nil when it has none,
// and writes them to id.
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

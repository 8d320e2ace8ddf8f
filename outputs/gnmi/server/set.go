// SPDX-License-Identifier: Apache-2.0

// Set checks its deletes, replaces and updates, and divides them into steps on leaves. The owner of
// the configuration applies all steps or none.

package server

import (
	"context"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/yang"
)

// Edit is one step of a Set. A later step overrides an earlier one.
type Edit struct {
	// Path is the path from the root, with the keys of every list and without module names. A delete
	// can name any node: the configuration at and below the node returns to its default. Any other
	// edit names a leaf.
	Path   []*gpb.PathElem
	Delete bool
	// Leaf is the leaf to set; nil if a delete names a node that is not a leaf. Value is a uint64,
	// int64, float64, bool or string, according to Leaf.Kind.
	Leaf  *yang.Leaf
	Value any
}

// Apply carries out all steps of one Set; or it carries out none and returns an error that names
// the path. A status error is returned to the client unchanged, any other error as
// InvalidArgument. Calls may overlap.
type Apply func(ctx context.Context, edits []Edit) error

// Set changes configuration through Options.Apply; without it, Set is refused. A transaction
// carries out deletes, then replaces, then updates (gNMI 3.4.3), all of them or none.
func (s *Server) Set(ctx context.Context, req *gpb.SetRequest) (*gpb.SetResponse, error) {
	s.stats.requests.Add(1)
	resp, err := s.set(ctx, req)
	if err != nil {
		return nil, s.refused(err)
	}
	return resp, nil
}

func (s *Server) set(ctx context.Context, req *gpb.SetRequest) (*gpb.SetResponse, error) {
	if s.opts.Apply == nil {
		return nil, status.Error(codes.Unimplemented,
			"Set: this server has only measurements and no configuration; use Get or Subscribe")
	}
	if len(req.GetUnionReplace()) > 0 {
		return nil, status.Error(codes.Unimplemented, "Set: union_replace is not supported; use replace")
	}
	if n := len(req.GetDelete()) + len(req.GetReplace()) + len(req.GetUpdate()); n > s.opts.MaxPaths {
		return nil, status.Errorf(codes.ResourceExhausted, "Set: %d operations; expected at most %d", n,
			s.opts.MaxPaths)
	}
	commit, others := s.takeExtensions(req.GetExtension())
	if _, err := extensions(others, false); err != nil {
		return nil, err
	}
	if err := s.arbitrate(req.GetExtension()); err != nil {
		return nil, err
	}
	r, err := s.resolver(s.opts.Schema(), caller{}, req.GetPrefix(), nil)
	if err != nil {
		return nil, err
	}
	r.unknown = codes.InvalidArgument
	t := &transaction{resolver: r}
	resp := &gpb.SetResponse{Prefix: req.GetPrefix()}
	result := func(p *gpb.Path, op gpb.UpdateResult_Operation) {
		resp.Response = append(resp.Response, &gpb.UpdateResult{Path: p, Op: op})
	}
	for _, p := range req.GetDelete() {
		if err := t.remove(p); err != nil {
			return nil, err
		}
		result(p, gpb.UpdateResult_DELETE)
	}
	for _, u := range req.GetReplace() {
		if err := t.replace(u); err != nil {
			return nil, err
		}
		result(u.GetPath(), gpb.UpdateResult_REPLACE)
	}
	for _, u := range req.GetUpdate() {
		if err := t.update(u); err != nil {
			return nil, err
		}
		result(u.GetPath(), gpb.UpdateResult_UPDATE)
	}
	if err := s.transact(ctx, t.edits, commit); err != nil {
		if _, ok := status.FromError(err); ok {
			return nil, err
		}
		return nil, invalid("Set: %s", err)
	}
	resp.Timestamp = s.opts.Now().UnixNano()
	return resp, nil
}

// maxEdits bounds the steps of one request.
const maxEdits = 100_000

// transaction collects the steps of a request.
type transaction struct {
	*resolver
	edits []Edit
}

// path checks a path and returns its node and its elements from the top.
func (t *transaction) path(p *gpb.Path) (*yang.Node, []*gpb.PathElem, error) {
	if _, err := t.resolve(p); err != nil {
		return nil, nil, err
	}
	full := make([]*gpb.PathElem, 0, len(t.prefix.GetElem())+len(p.GetElem()))
	full = append(append(full, t.prefix.GetElem()...), p.GetElem()...)
	for _, e := range full {
		if name := e.GetName(); name == "*" || name == "..." {
			return nil, nil, invalid("Set: %s: wildcards are not valid in a Set", yang.PathString(full))
		}
	}
	n, elems, err := (&yang.UpdateReader{Schema: t.schema}).Resolve(full)
	if err != nil {
		return nil, nil, invalid("Set: %s", strings.TrimPrefix(err.Error(), "yang: "))
	}
	if !n.Config && n.Parent != nil {
		return nil, nil, invalid("Set: %s is state; only configuration can be set", yang.PathString(full))
	}
	return n, elems, nil
}

func (t *transaction) remove(p *gpb.Path) error {
	n, elems, err := t.path(p)
	if err != nil {
		return err
	}
	return t.add(Edit{Path: elems, Delete: true, Leaf: n.Leaf})
}

func (t *transaction) replace(u *gpb.Update) error {
	n, elems, err := t.path(u.GetPath())
	if err != nil {
		return err
	}
	if n.Leaf == nil { // setting a leaf replaces it anyway
		if err := t.add(Edit{Path: elems, Delete: true}); err != nil {
			return err
		}
	}
	return t.read(elems, u)
}

func (t *transaction) update(u *gpb.Update) error {
	_, elems, err := t.path(u.GetPath())
	if err != nil {
		return err
	}
	return t.read(elems, u)
}

func (t *transaction) read(elems []*gpb.PathElem, u *gpb.Update) error {
	r := &yang.UpdateReader{Schema: t.schema, Found: func(l yang.LeafUpdate) error {
		if !l.Leaf.Config() {
			return invalid("Set: %s is state; only configuration can be set", yang.PathString(l.Elems))
		}
		return t.add(Edit{Path: append([]*gpb.PathElem(nil), l.Elems...), Leaf: l.Leaf, Value: l.Value})
	}}
	if err := r.Read(elems, u.GetVal()); err != nil {
		if _, ok := status.FromError(err); ok {
			return err
		}
		return invalid("Set: %s", strings.TrimPrefix(err.Error(), "yang: "))
	}
	return nil
}

func (t *transaction) add(e Edit) error {
	if len(t.edits) >= maxEdits {
		return status.Errorf(codes.ResourceExhausted, "Set: more than %d leaves; send them in several requests",
			maxEdits)
	}
	t.edits = append(t.edits, e)
	return nil
}

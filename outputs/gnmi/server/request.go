// SPDX-License-Identifier: Apache-2.0

// Checks the paths of Get and Subscribe requests, and resolves them to queries.

package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	extpb "github.com/openconfig/gnmi/proto/gnmi_ext"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang"
)

// resolved is a path of a request and its query.
type resolved struct {
	query  store.Query
	path   *gpb.Path // path as in the request
	prefix *gpb.Path
	origin string
}

// resolver resolves the paths of a request to queries.
type resolver struct {
	server *Server
	schema *yang.Schema
	caller caller
	prefix *gpb.Path
	depth  int
	// unknown is the code of the error for a well-formed path that is in no model, or whose origin is
	// not served: UNIMPLEMENTED for Get and Subscribe (specification, 3.3.4 and 3.5.2.4). The origin
	// is a part of what identifies a path (2.7).
	unknown codes.Code
}

// invalid returns the error for an invalid request. The text is shortened, because a client may
// send a path of megabytes.
func invalid(format string, args ...any) error {
	return status.Error(codes.InvalidArgument, short(fmt.Sprintf(format, args...)))
}

// maxMessage bounds the text of an error, in bytes.
const maxMessage = 1000

func short(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}

// resolver checks the prefix of a request, and returns a resolver for the request's paths.
func (s *Server) resolver(schema *yang.Schema, c caller, prefix *gpb.Path,
	ext []*extpb.Extension,
) (*resolver, error) {
	depth, err := extensions(ext, true)
	if err != nil {
		return nil, err
	}
	if elementsOnly(prefix) {
		return nil, invalid("prefix: the field element was removed in gNMI 0.4; use elem")
	}
	return &resolver{server: s, schema: schema, caller: c, prefix: prefix, depth: depth,
		unknown: codes.Unimplemented}, nil
}

// elementsOnly reports whether a path has only the form used before gNMI 0.4. If a client sends
// both forms, as gnmi_cli does, elem is used. Reflection avoids the compiler's deprecation
// warning.
func elementsOnly(p *gpb.Path) bool {
	if p == nil || len(p.GetElem()) > 0 {
		return false
	}
	m := p.ProtoReflect()
	return m.Get(m.Descriptor().Fields().ByName("element")).List().Len() > 0
}

// resolve checks one path against the schema.
func (r *resolver) resolve(path *gpb.Path) (*resolved, error) {
	if elementsOnly(path) {
		return nil, invalid("path: the field element was removed in gNMI 0.4; use elem")
	}
	if path.GetTarget() != "" {
		return nil, invalid("path %s: target %q belongs in the prefix", yang.PathString(path.GetElem()),
			clip(path.GetTarget()))
	}
	if r.prefix.GetOrigin() != "" && path.GetOrigin() != "" {
		return nil, invalid("path %s: origin %q, and the prefix has origin %q; expected it in one of them",
			yang.PathString(path.GetElem()), clip(path.GetOrigin()), clip(r.prefix.GetOrigin()))
	}
	origin := r.prefix.GetOrigin() + path.GetOrigin()
	prefix, path2 := &gpb.Path{Elem: r.prefix.GetElem()}, &gpb.Path{Elem: path.GetElem()}
	nodes, err := r.schema.Resolve(prefix, path2)
	if err != nil {
		code := codes.InvalidArgument
		if _, unknown := errors.AsType[*yang.UnknownPathError](err); unknown {
			code = r.unknown
		}
		return nil, status.Error(code, short("path: "+strings.TrimPrefix(err.Error(), "yang: ")))
	}
	if !servesOrigin(origin, nodes) {
		return nil, status.Errorf(r.unknown, "origin %q is not served; expected openconfig or no origin", clip(origin))
	}
	if err := r.caller.permits(slices.Concat(r.prefix.GetElem(), path.GetElem())); err != nil {
		r.server.Refused(Path, r.caller.String(), err)
		return nil, err
	}
	a := &resolved{path: path, prefix: r.prefix, origin: origin}
	a.query = store.Query{Target: r.target(), Depth: r.depth}
	for _, part := range [][]*gpb.PathElem{r.prefix.GetElem(), path.GetElem()} {
		for _, e := range part {
			_, name, _ := cutModule(e.GetName())
			a.query.Elems = append(a.query.Elems, store.Elem{Name: name, Keys: e.GetKey()})
		}
	}
	return a, nil
}

// servesOrigin accepts an empty origin, "openconfig", and the module of the path's top node, which
// many clients send.
func servesOrigin(origin string, nodes []*yang.Node) bool {
	if origin == "" || origin == "openconfig" {
		return true
	}
	for _, n := range nodes {
		for n.Parent != nil && n.Parent.Parent != nil {
			n = n.Parent
		}
		if n.Parent == nil || n.Module == origin {
			return true
		}
	}
	return false
}

// target returns the store's target of the request.
func (r *resolver) target() string {
	if r.server.opts.AnyTarget {
		return ""
	}
	return r.prefix.GetTarget()
}

// extensions refuses unsupported extensions, and returns the level of the extension Depth. reads
// is true for RPCs to which Depth applies.
func extensions(ext []*extpb.Extension, reads bool) (int, error) {
	depth := 0
	for _, e := range ext {
		switch x := e.GetExt().(type) {
		case *extpb.Extension_Depth:
			if !reads {
				return 0, invalid("extension depth applies to Get and Subscribe only")
			}
			if x.Depth.GetLevel() > 1<<16 {
				return 0, invalid("extension depth: level %d is out of range; expected at most 65536",
					x.Depth.GetLevel())
			}
			depth = int(x.Depth.GetLevel())
		case *extpb.Extension_History:
			return 0, status.Error(codes.Unimplemented,
				"extension history is not supported: the server holds only the newest results")
		case *extpb.Extension_MasterArbitration:
			return 0, status.Error(codes.Unimplemented, "extension master_arbitration is not supported here")
		case *extpb.Extension_Commit:
			return 0, status.Error(codes.Unimplemented, "extension commit is not supported here")
		case *extpb.Extension_ConfigSubscription:
			return 0, status.Error(codes.Unimplemented, "extension config_subscription is not supported")
		case *extpb.Extension_RegisteredExt:
			return 0, status.Errorf(codes.Unimplemented, "registered extension %s is not supported",
				x.RegisteredExt.GetId())
		default:
			return 0, status.Error(codes.Unimplemented, "an unknown extension is not supported")
		}
	}
	return depth, nil
}

// checkEncoding accepts the encodings that Capabilities lists.
func checkEncoding(e gpb.Encoding) error {
	switch e {
	case gpb.Encoding_JSON, gpb.Encoding_JSON_IETF, gpb.Encoding_PROTO:
		return nil
	}
	return status.Errorf(codes.Unimplemented, "encoding %s is unsupported; expected JSON, JSON_IETF or PROTO", e)
}

// filter selects leaves of a request by type and use_models.
type filter struct {
	models map[string]bool // modules of use_models; nil allows all
	kind   gpb.GetRequest_DataType
}

// matches reports whether a leaf passes.
func (f filter) matches(l *leafInfo) bool {
	switch f.kind {
	case gpb.GetRequest_CONFIG:
		if !l.config {
			return false
		}
	case gpb.GetRequest_STATE, gpb.GetRequest_OPERATIONAL:
		if l.config {
			return false
		}
	}
	if f.models == nil {
		return true
	}
	for _, m := range l.modules {
		if !f.models[m] {
			return false
		}
	}
	return true
}

// none reports whether all leaves pass the filter.
func (f filter) none() bool { return f.models == nil && f.kind == gpb.GetRequest_ALL }

// reflectPrefix returns the prefix of replies to a request: its origin and target without
// elements, so that the paths of updates start at the root.
func reflectPrefix(p *gpb.Path) *gpb.Path {
	if p.GetOrigin() == "" && p.GetTarget() == "" {
		return nil
	}
	return &gpb.Path{Origin: p.GetOrigin(), Target: p.GetTarget()}
}

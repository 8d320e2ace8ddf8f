// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	extpb "github.com/openconfig/gnmi/proto/gnmi_ext"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/yang"
)

func TestSetWithoutConfiguration(t *testing.T) {
	_, err := newFixture(t).dial().Set(t.Context(), &gpb.SetRequest{})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "no configuration") {
		t.Errorf("Set: %v", err)
	}
}

// steps formats edits as text.
func steps(edits []Edit) string {
	var out []string
	for _, e := range edits {
		if e.Delete {
			out = append(out, "-"+yang.PathString(e.Path))
		} else {
			out = append(out, fmt.Sprintf("%s=%v", yang.PathString(e.Path), e.Value))
		}
	}
	return strings.Join(out, " ")
}

func update(p, json string) *gpb.Update {
	return &gpb.Update{Path: path(p), Val: &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(json)}}}
}

func TestSet(t *testing.T) {
	var got []Edit
	var refuse error
	api := newFixture(t, func(o *Options) {
		o.Apply = func(_ context.Context, edits []Edit) error {
			got = edits
			return refuse
		}
	}).dial()
	const e1 = "/interfaces/interface[name=e1]"
	for name, tt := range map[string]struct {
		req  *gpb.SetRequest
		want string // expected steps, or "!" and a part of the error
		code codes.Code
	}{
		"nothing": {&gpb.SetRequest{}, "", codes.OK},
		"order is delete, replace, update": {&gpb.SetRequest{
			Update:  []*gpb.Update{update(e1+"/config/mtu", "1500")},
			Replace: []*gpb.Update{update(e1+"/config", `{"name":"e1","mtu":9000}`)},
			Delete:  []*gpb.Path{path("/interfaces/interface[name=e2]/config/mtu")},
		}, "-/interfaces/interface[name=e2]/config/mtu -" +
			e1 + "/config " + e1 + "/config/mtu=9000 " + e1 + "/config/name=e1 " + e1 + "/config/mtu=1500", codes.OK},
		"prefix": {&gpb.SetRequest{Prefix: path(e1),
			Update: []*gpb.Update{update("config/enabled", "false")}}, e1 + "/config/enabled=false", codes.OK},
		"replace a leaf": {&gpb.SetRequest{Replace: []*gpb.Update{update(e1+"/config/enabled", "false")}},
			e1 + "/config/enabled=false", codes.OK},
		"delete a list": {&gpb.SetRequest{Delete: []*gpb.Path{path("/interfaces/interface")}},
			"-/interfaces/interface", codes.OK},
		"several entries": {&gpb.SetRequest{Update: []*gpb.Update{update("/interfaces",
			`{"interface":[{"name":"a","config":{"mtu":1}},{"name":"b","config":{"mtu":2}}]}`)}},
			"/interfaces/interface[name=a]/config/mtu=1 /interfaces/interface[name=b]/config/mtu=2", codes.OK},
		"state": {&gpb.SetRequest{Update: []*gpb.Update{update(e1+"/state/mtu", "1500")}},
			"! " + e1 + "/state/mtu is state", codes.InvalidArgument},
		"state in a value": {&gpb.SetRequest{Update: []*gpb.Update{update(e1,
			`{"config":{"mtu":1},"state":{"mtu":1}}`)}}, "! " + e1 + "/state/mtu is state", codes.InvalidArgument},
		"delete of state": {&gpb.SetRequest{Delete: []*gpb.Path{path(e1 + "/state")}}, "! is state",
			codes.InvalidArgument},
		"outside of the schema": {&gpb.SetRequest{Update: []*gpb.Update{update(e1+"/config/colour", `"blue"`)}},
			"! colour", codes.InvalidArgument},
		"outside in a value": {&gpb.SetRequest{Update: []*gpb.Update{update(e1+"/config",
			`{"colour":"blue"}`)}}, "! colour", codes.InvalidArgument},
		"wildcard": {&gpb.SetRequest{Delete: []*gpb.Path{path("/interfaces/*")}},
			"! wildcards are not valid", codes.InvalidArgument},
		"wildcard key": {&gpb.SetRequest{Delete: []*gpb.Path{path("/interfaces/interface[name=*]/config/mtu")}},
			"! key name", codes.InvalidArgument},
		"key left out": {&gpb.SetRequest{Update: []*gpb.Update{update("/interfaces/interface/config/mtu",
			"1")}}, "! key name", codes.InvalidArgument},
		"wrong type": {&gpb.SetRequest{Update: []*gpb.Update{update(e1+"/config/enabled", `"maybe"`)}},
			"! " + e1 + "/config/enabled", codes.InvalidArgument},
		"out of range": {&gpb.SetRequest{Update: []*gpb.Update{update(e1+"/config/mtu", "70000")}},
			"! outside of", codes.InvalidArgument},
		"no value": {&gpb.SetRequest{Update: []*gpb.Update{{Path: path(e1 + "/config/mtu")}}},
			"! no value", codes.InvalidArgument},
		"union_replace": {&gpb.SetRequest{UnionReplace: []*gpb.Update{update(e1+"/config/mtu", "1")}},
			"! union_replace", codes.Unimplemented},
		"extension": {&gpb.SetRequest{Extension: []*extpb.Extension{
			{Ext: &extpb.Extension_Commit{Commit: &extpb.Commit{}}}}}, "! commit", codes.Unimplemented},
		"key differs from the entry": {&gpb.SetRequest{Update: []*gpb.Update{update(e1, `{"name":"e2"}`)}}, "! e2",
			codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			got = nil
			resp, err := api.Set(t.Context(), tt.req)
			if status.Code(err) != tt.code {
				t.Fatalf("%v; expected %s", err, tt.code)
			}
			if part, bad := strings.CutPrefix(tt.want, "! "); bad {
				if !strings.Contains(err.Error(), part) || got != nil {
					t.Errorf("%v, applied %q; expected an error with %q and nothing applied", err, steps(got), part)
				}
				return
			}
			if g := steps(got); g != tt.want {
				t.Errorf("got  %s\nwant %s", g, tt.want)
			}
			if n := len(tt.req.Delete) + len(tt.req.Replace) + len(tt.req.Update); len(resp.Response) != n ||
				resp.Timestamp == 0 {
				t.Errorf("response %v; expected %d results", resp, n)
			}
		})
	}
	refuse = errors.New("/interfaces/interface[name=e1] is not there")
	if _, err := api.Set(t.Context(), &gpb.SetRequest{}); status.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), "is not there") {
		t.Errorf("refused by Apply: %v", err)
	}
	refuse = status.Error(codes.Aborted, "busy")
	if _, err := api.Set(t.Context(), &gpb.SetRequest{}); status.Code(err) != codes.Aborted {
		t.Errorf("refused by Apply with a status: %v", err)
	}
}

func FuzzSet(f *testing.F) {
	fx := newFixture(f, func(o *Options) {
		o.Apply = func(_ context.Context, edits []Edit) error {
			for _, e := range edits {
				if len(e.Path) == 0 && !e.Delete || !e.Delete && (e.Leaf == nil || !e.Leaf.Config() || e.Value == nil) {
					return status.Errorf(codes.Internal, "edit %+v", e)
				}
			}
			return nil
		}
	})
	f.Add("config", `{"interface":[{"name":"a","config":{"mtu":1}}]}`, true)
	f.Add("mtu", `7`, false)
	f.Fuzz(func(t *testing.T, name, value string, list bool) {
		p := &gpb.Path{Elem: []*gpb.PathElem{{Name: "interfaces"}}}
		if !list {
			p.Elem = append(p.Elem, &gpb.PathElem{Name: "interface", Key: map[string]string{"name": name}},
				&gpb.PathElem{Name: "config"}, &gpb.PathElem{Name: name})
		}
		v := &gpb.TypedValue{Value: &gpb.TypedValue_JsonVal{JsonVal: []byte(value)}}
		_, err := fx.server.Set(t.Context(), &gpb.SetRequest{Delete: []*gpb.Path{p},
			Replace: []*gpb.Update{{Path: p, Val: v}}, Update: []*gpb.Update{{Path: p, Val: v}}})
		if c := status.Code(err); c != codes.OK && c != codes.InvalidArgument {
			t.Fatal(err)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	extpb "github.com/openconfig/gnmi/proto/gnmi_ext"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// getLines returns the reply to a Get as lines, or the text of its error.
func getLines(c gpb.GNMIClient, req *gpb.GetRequest) []string {
	resp, err := c.Get(context.Background(), req)
	if err != nil {
		return []string{status.Code(err).String() + ": " + status.Convert(err).Message()}
	}
	var out []string
	for _, n := range resp.Notification {
		out = append(out, lines(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: n}})...)
	}
	return out
}

func TestGet(t *testing.T) {
	f := newFixture(t)
	f.publish(hitters(t, "s1 10.0.0.1 100", "s1 10.0.0.2 50"), summary(t, "s1", 7, 1<<60, 2.5))
	api := f.dial()
	sum := "/univmon/node-summaries/node-summary[dimension=src][node=s1]"
	for _, tc := range []struct {
		name string
		enc  gpb.Encoding
		path string
		want []string
	}{
		{"leaf, PROTO", gpb.Encoding_PROTO, hitterA + "/state/packets",
			[]string{hitterA + "/state/packets = uint 100"}},
		{"wildcard, PROTO", gpb.Encoding_PROTO, packets,
			[]string{hitterA + "/state/packets = uint 100", hitterB + "/state/packets = uint 50"}},
		{"leaf, JSON", gpb.Encoding_JSON, hitterA + "/state/packets", []string{hitterA + "/state/packets = json 100"}},
		{"leaf, IETF", gpb.Encoding_JSON_IETF, hitterA + "/state/packets",
			[]string{hitterA + `/state/packets = ietf "100"`}},
		{"container, JSON", gpb.Encoding_JSON, sum + "/state",
			[]string{sum + `/state = json {"node":"s1","dimension":"src","second-moment":7,"status":"COMPLETE",` +
				`"packets":1152921504606846976,"entropy":2.5,"heavy-hitters":3}`}},
		{"container, IETF", gpb.Encoding_JSON_IETF, sum + "/state",
			[]string{sum + `/state = ietf {"netsketch-univmon:node":"s1","netsketch-univmon:dimension":"src",` +
				`"netsketch-univmon:second-moment":"7","netsketch-univmon:status":"COMPLETE",` +
				`"netsketch-univmon:packets":"1152921504606846976","netsketch-univmon:entropy":"2.5",` +
				`"netsketch-univmon:heavy-hitters":3}`}},
		{"entry, IETF", gpb.Encoding_JSON_IETF, hitterA,
			[]string{hitterA + ` = ietf {"netsketch-univmon:node":"s1","netsketch-univmon:dimension":"src",` +
				`"netsketch-univmon:flow":"10.0.0.1","netsketch-univmon:state":{"node":"s1","dimension":"src",` +
				`"flow":"10.0.0.1","packets":"100"}}`}},
		{"list without keys, JSON", gpb.Encoding_JSON, "/univmon/heavy-hitters/heavy-hitter", []string{
			hitterA + ` = json {"node":"s1","dimension":"src","flow":"10.0.0.1","state":{"node":"s1","dimension":"src",` +
				`"flow":"10.0.0.1","packets":100}}`,
			hitterB + ` = json {"node":"s1","dimension":"src","flow":"10.0.0.2","state":{"node":"s1","dimension":"src",` +
				`"flow":"10.0.0.2","packets":50}}`}},
		{"container with a list, IETF", gpb.Encoding_JSON_IETF, "/univmon/heavy-hitters", []string{
			`/univmon/heavy-hitters = ietf {"netsketch-univmon:heavy-hitter":[` +
				`{"node":"s1","dimension":"src","flow":"10.0.0.1","state":{"node":"s1","dimension":"src",` +
				`"flow":"10.0.0.1","packets":"100"}},` +
				`{"node":"s1","dimension":"src","flow":"10.0.0.2","state":{"node":"s1","dimension":"src",` +
				`"flow":"10.0.0.2","packets":"50"}}]}`}},
		{"any depth, JSON", gpb.Encoding_JSON, "/.../packets", []string{
			hitterA + "/state/packets = json 100", hitterB + "/state/packets = json 50",
			sum + "/state/packets = json 1152921504606846976"}},
		{"not there", gpb.Encoding_JSON, "/univmon/flows",
			[]string{"NotFound: Get: /univmon/flows has no value (yet)"}},
		{"no such entry", gpb.Encoding_PROTO, "/univmon/heavy-hitters/heavy-hitter[flow=10.9.9.9]",
			[]string{"NotFound: Get: /univmon/heavy-hitters/heavy-hitter[flow=10.9.9.9] has no value (yet)"}},
		{"outside the schema", gpb.Encoding_JSON, "/univmon/summarys",
			[]string{`Unimplemented: path: there is no "summarys" at /netsketch-univmon:univmon; did you mean "summary"? ` +
				`(element 2 of /univmon/summarys)`}},
		{"encoding", gpb.Encoding_ASCII, "/", []string{"Unimplemented: encoding ASCII is unsupported; expected JSON, " +
			"JSON_IETF or PROTO"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := getLines(api, &gpb.GetRequest{Encoding: tc.enc, Path: []*gpb.Path{path(tc.path)}})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGetIsOneNotificationPerPath(t *testing.T) {
	f := newFixture(t)
	f.publish(hitters(t, "s1 10.0.0.1 100", "s1 10.0.0.2 50"))
	resp, err := f.dial().Get(t.Context(), &gpb.GetRequest{
		Prefix: &gpb.Path{Target: "netsketch", Elem: path("/univmon/heavy-hitters").Elem}, Encoding: gpb.Encoding_PROTO,
		Path: []*gpb.Path{path("heavy-hitter[flow=10.0.0.1]/state/packets"),
			path("heavy-hitter[flow=10.0.0.2]/state/packets")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Notification) != 2 {
		t.Fatalf("%d notifications for 2 paths", len(resp.Notification))
	}
	for i, want := range []string{"netsketch " + hitterA + "/state/packets = uint 100",
		"netsketch " + hitterB + "/state/packets = uint 50"} {
		n := resp.Notification[i]
		if got := lines(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: n}}); got[0] != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if n.Timestamp != t0.UnixNano()+1e9 {
			t.Errorf("timestamp %d is not the epoch's end", n.Timestamp)
		}
	}
}

func TestGetTargets(t *testing.T) {
	f := newFixture(t)
	f.publish(hitters(t, "s1 10.0.0.1 1"))
	if err := f.store.Publish(store.Batch{Target: "leaf7", Time: t0,
		Tables: []store.Publication{{Table: hitters(t, "s1 10.0.0.1 2")}}}); err != nil {
		t.Fatal(err)
	}
	api := f.dial()
	for target, want := range map[string][]string{
		"":          {hitterA + "/state/packets = uint 1"},
		"netsketch": {"netsketch " + hitterA + "/state/packets = uint 1"},
		"leaf7":     {"leaf7 " + hitterA + "/state/packets = uint 2"},
		"*": {"leaf7 " + hitterA + "/state/packets = uint 2",
			"netsketch " + hitterA + "/state/packets = uint 1"},
		"leaf8": {`NotFound: Get: there is no target "leaf8"; there are ["leaf7" "netsketch"]`},
	} {
		got := getLines(api, &gpb.GetRequest{Prefix: &gpb.Path{Target: target}, Encoding: gpb.Encoding_PROTO,
			Path: []*gpb.Path{path(packets)}})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("target %q: %s", target, diff)
		}
	}
}

func TestGetTypes(t *testing.T) {
	f := newFixture(t)
	b := table.NewBuilder("/openconfig-interfaces:interfaces/interface")
	b.TextKey("name").Append("eth0")
	b.Uint("state/ifindex").Append(4)
	f.publish(built(t, b))
	api := f.dial()
	eth := "/interfaces/interface[name=eth0]"
	config := []string{eth + "/name = string eth0", eth + "/config/name = string eth0"}
	state := []string{eth + "/state/name = string eth0", eth + "/state/ifindex = uint 4"}
	for typ, want := range map[gpb.GetRequest_DataType][]string{
		gpb.GetRequest_ALL: append(config[:2:2], state...), gpb.GetRequest_CONFIG: config,
		gpb.GetRequest_STATE: state, gpb.GetRequest_OPERATIONAL: state,
	} {
		got := getLines(api, &gpb.GetRequest{Type: typ, Encoding: gpb.Encoding_PROTO,
			Path: []*gpb.Path{path("/interfaces")}})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", typ, diff)
		}
	}
	if got := getLines(api, &gpb.GetRequest{Type: 9, Path: []*gpb.Path{path("/interfaces")}}); !strings.Contains(got[0],
		"InvalidArgument") {
		t.Errorf("type 9: %v", got)
	}
}

// TestGetState: a Get of type STATE returns every list that a plugin or a host agent publishes, and
// a Get of type CONFIG none of them.
func TestGetState(t *testing.T) {
	results := []string{"chamelemon", "host", "lightguardian", "omnimon", "sketchint", "univmon"}
	lists := 0
	for _, l := range testSchema().Lists() {
		_, top, _ := strings.Cut(strings.SplitN(l.Path, "/", 3)[1], ":")
		if l.Nested || !slices.Contains(results, top) {
			continue
		}
		lists++
		f := newFixture(t)
		f.publish(yangtest.Example(l))
		api := f.dial()
		for typ, want := range map[gpb.GetRequest_DataType]bool{gpb.GetRequest_STATE: true, gpb.GetRequest_CONFIG: false} {
			got := getLines(api, &gpb.GetRequest{Type: typ, Encoding: gpb.Encoding_PROTO, Path: []*gpb.Path{path("/" + top)}})
			if found := !strings.HasPrefix(got[0], "NotFound"); found != want {
				t.Errorf("%s, type %v: %d lines, such as %q", l.Path, typ, len(got), got[0])
			}
		}
	}
	if lists < 40 {
		t.Errorf("only %d lists were tried", lists)
	}
}

func TestGetRefused(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.MaxPaths, o.MaxGetLeaves = 2, 3 })
	f.publish(hitters(t, "s1 10.0.0.1 1", "s1 10.0.0.2 1", "s1 10.0.0.3 1", "s1 10.0.0.4 1"))
	api := f.dial()
	p := path("/univmon")
	for name, tc := range map[string]struct {
		req  *gpb.GetRequest
		want string
	}{
		"no path":    {&gpb.GetRequest{}, "InvalidArgument: Get: the request has no path"},
		"many paths": {&gpb.GetRequest{Path: []*gpb.Path{p, p, p}}, "ResourceExhausted: Get: 3 paths"},
		"too large": {&gpb.GetRequest{Path: []*gpb.Path{p}},
			"ResourceExhausted: Get: /univmon has more than 3 leaves"},
		"model": {&gpb.GetRequest{Path: []*gpb.Path{p}, UseModels: []*gpb.ModelData{{Name: "x"}}},
			"InvalidArgument: use_models"},
		"huge": {&gpb.GetRequest{Path: []*gpb.Path{path("/univmon/" + strings.Repeat("x", 1<<20))}},
			"Unimplemented: path: there is no"},
		"extension": {&gpb.GetRequest{Path: []*gpb.Path{p},
			Extension: []*extpb.Extension{{Ext: &extpb.Extension_History{}}}}, "Unimplemented: extension history"},
	} {
		if got := getLines(api, tc.req); !strings.HasPrefix(got[0], tc.want) {
			t.Errorf("%s: got %.2000q, want %q", name, got[0], tc.want)
		}
		if got := getLines(api, tc.req); len(got[0]) > 1200 {
			t.Errorf("%s: %d bytes of error", name, len(got[0]))
		}
	}
}

func TestCapabilities(t *testing.T) {
	api := newFixture(t).dial()
	caps, err := api.Capabilities(t.Context(), &gpb.CapabilityRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]gpb.Encoding{gpb.Encoding_JSON, gpb.Encoding_JSON_IETF, gpb.Encoding_PROTO},
		caps.SupportedEncodings); diff != "" {
		t.Error(diff)
	}
	got := map[string]string{}
	for _, m := range caps.SupportedModels {
		got[m.Name] = m.Organization + " " + m.Version
	}
	if caps.GNMIVersion != "0.10.0" || got["netsketch-univmon"] != "netsketch 0.1.0" ||
		got["openconfig-interfaces"] == "" {
		t.Errorf("version %s, models %v", caps.GNMIVersion, got)
	}
	depth := &extpb.Extension{Ext: &extpb.Extension_Depth{Depth: &extpb.Depth{Level: 1}}}
	_, err = api.Capabilities(t.Context(), &gpb.CapabilityRequest{Extension: []*extpb.Extension{depth}})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("depth with Capabilities: %v", err)
	}
}

// queryFunc is a Querier.
type queryFunc func(ctx context.Context, target, list string, keys map[string]string) (*store.View, error)

func (f queryFunc) Query(ctx context.Context, target, list string, keys map[string]string) (*store.View, error) {
	return f(ctx, target, list, keys)
}

func TestGetQueriesARow(t *testing.T) {
	var asked []string
	var f *fixture
	f = newFixture(t, func(o *Options) {
		o.Querier = queryFunc(func(_ context.Context, target, list string, keys map[string]string) (*store.View,
			error) {
			asked = append(asked, fmt.Sprint(target, " ", list, " ", keys))
			switch keys["flow"] {
			case "10.0.0.7":
				return f.store.Preview(store.Batch{
					Target: target, Time: t0, Epoch: 9,
					Tables: []store.Publication{{Table: hitters(t, "s1 10.0.0.7 70"), Replace: true}},
				})
			case "10.0.0.8":
				return nil, status.Error(codes.DeadlineExceeded, "plugin univmon: no answer in time")
			}
			return nil, status.Error(codes.NotFound, "plugin univmon: the plugin has no such row")
		})
	})
	f.publish(hitters(t, "s1 10.0.0.1 100"))
	api := f.dial()
	const list = "/univmon/heavy-hitters/heavy-hitter"
	queried := func(flow string) string {
		return "netsketch /netsketch-univmon:univmon/heavy-hitters/heavy-hitter map[dimension:src " +
			"flow:" + flow + " node:s1]"
	}
	row := func(flow string) string { return list + "[dimension=src][flow=" + flow + "][node=s1]" }
	for _, tc := range []struct {
		path  string
		want  []string
		asked []string
	}{
		{row("10.0.0.1") + "/state/packets", []string{row("10.0.0.1") + "/state/packets = uint 100"}, nil},
		{row("10.0.0.7") + "/state/packets", []string{row("10.0.0.7") + "/state/packets = uint 70"},
			[]string{queried("10.0.0.7")}},
		{row("10.0.0.8"), []string{"DeadlineExceeded: Get: " + row("10.0.0.8") +
			" has no value (yet): plugin univmon: no answer in time"}, []string{queried("10.0.0.8")}},
		{row("10.0.0.9"), []string{"NotFound: Get: " + row("10.0.0.9") +
			" has no value (yet): plugin univmon: the plugin has no such row"}, []string{queried("10.0.0.9")}},
		{list + "[flow=10.0.0.9]", []string{"NotFound: Get: " + list + "[flow=10.0.0.9] has no value (yet)"}, nil},
		{row("*") + "/state/share", []string{"NotFound: Get: " + row("*") + "/state/share has no value (yet)"}, nil},
	} {
		asked = nil
		got := getLines(api, &gpb.GetRequest{Encoding: gpb.Encoding_PROTO, Path: []*gpb.Path{path(tc.path)}})
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.path, diff)
		}
		if diff := cmp.Diff(tc.asked, asked); diff != "" {
			t.Errorf("%s: queries (-want +got):\n%s", tc.path, diff)
		}
	}
}

func TestNewNeedsWhatItServes(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("a server without store and schema")
	}
	st := store.New(store.Options{})
	defer st.Close()
	if _, err := New(Options{Store: st, Schema: testSchema, Atomic: []string{"/nowhere"}}); err == nil ||
		errors.Is(err, context.Canceled) {
		t.Error("an atomic container that the schema does not have")
	}
}

// Each leaf is sent with the time at which it was measured, in every mode and encoding, although
// the leaves of its row were measured at different times.
func TestLeavesHaveTheirTimes(t *testing.T) {
	f := newFixture(t)
	publish := func(seconds int64, leaves map[string]uint64) {
		b := table.NewBuilder("/netsketch-univmon:univmon/node-summaries/node-summary")
		b.TextKey("node").Append("s1")
		b.TextKey("dimension").Append("src")
		for name, v := range leaves {
			b.Uint("state/" + name).Append(v)
		}
		if err := f.store.Publish(store.Batch{Time: t0.Add(time.Duration(seconds) * time.Second),
			Tables: []store.Publication{{Table: built(t, b)}}}); err != nil {
			t.Fatal(err)
		}
	}
	publish(10, map[string]uint64{"second-moment": 1, "packets": 5, "heavy-hitters": 3})
	publish(20, map[string]uint64{"packets": 6})
	publish(30, map[string]uint64{"heavy-hitters": 4})
	const row = "/univmon/node-summaries/node-summary[dimension=src][node=s1]"
	want := map[string]int64{"second-moment": 10, "packets": 20, "heavy-hitters": 30}
	check := func(where string, notes ...*gpb.Notification) {
		t.Helper()
		got := map[string]int64{}
		for _, n := range notes {
			for _, u := range n.GetUpdate() {
				for name := range want {
					if strings.HasSuffix(yang.PathString(u.GetPath().GetElem()), "/"+name) ||
						strings.Contains(string(u.GetVal().GetJsonIetfVal()), fmt.Sprintf("%q", name)) {
						got[name] = (n.GetTimestamp() - t0.UnixNano()) / 1e9
					}
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: seconds %v; expected %v", where, got, want)
		}
	}
	api := f.dial()
	for _, encoding := range []gpb.Encoding{gpb.Encoding_PROTO, gpb.Encoding_JSON_IETF} {
		get := &gpb.GetRequest{Encoding: encoding}
		for name := range want { // a JSON value of the whole row would have one time
			get.Path = append(get.Path, path(row+"/state/"+name))
		}
		resp, err := api.Get(t.Context(), get)
		if err != nil {
			t.Fatal(err)
		}
		check("Get "+encoding.String(), resp.GetNotification()...)
		for _, mode := range []gpb.SubscriptionList_Mode{gpb.SubscriptionList_ONCE, gpb.SubscriptionList_STREAM} {
			for _, sub := range []gpb.SubscriptionMode{gpb.SubscriptionMode_ON_CHANGE, gpb.SubscriptionMode_SAMPLE} {
				req := subscriptions(mode, row)
				req.GetSubscribe().Encoding, req.GetSubscribe().Subscription[0].Mode = encoding, sub
				c := subscribe(t, api, req)
				var notes []*gpb.Notification
				for {
					m, err := c.stream.Recv()
					if err != nil {
						t.Fatal(err)
					}
					if m.GetSyncResponse() {
						break
					}
					notes = append(notes, m.GetUpdate())
				}
				c.cancel()
				check(fmt.Sprint(mode, " ", sub, " ", encoding), notes...)
			}
		}
	}
}

// TestOddKeys: a row is found by exactly its key, whatever characters the key has, and no other
// row is.
func TestOddKeys(t *testing.T) {
	keys := []string{"a", "a]", "a]b", `a\`, `a\]b`, "a/b", "a=b", "[a]", "a[b=c]", "a b", " a", "a\nb", "a\tb", `"a"`,
		"é", "..", "...", "**", "a*", "%2A", "A", strings.Repeat("a", 4096)}
	b := table.NewBuilder("/netsketch-collector:collector/certificates/certificate")
	file, use := b.TextKey("file"), b.Text("state/use")
	for i, k := range keys {
		file.Append(k)
		use.Append(fmt.Sprint(i))
	}
	f := newFixture(t)
	f.publish(built(t, b))
	api := f.dial()
	for i, k := range keys {
		row := path("/collector/certificates/certificate/state/use")
		row.Elem[2].Key = map[string]string{"file": k}
		var got []*gpb.Update
		res, err := api.Get(t.Context(), &gpb.GetRequest{Path: []*gpb.Path{row}, Encoding: gpb.Encoding_PROTO})
		for _, n := range res.GetNotification() {
			got = append(got, n.GetUpdate()...)
		}
		if err != nil || len(got) != 1 || got[0].GetVal().GetStringVal() != fmt.Sprint(i) ||
			!maps.Equal(got[0].GetPath().GetElem()[2].GetKey(), row.Elem[2].Key) {
			t.Errorf("%.20q: %v, %v", k, got, err)
		}
		req := subscriptions(gpb.SubscriptionList_ONCE, "/univmon")
		req.GetSubscribe().Subscription[0].Path = row
		stream, err := api.Subscribe(t.Context())
		if err == nil {
			err = stream.Send(req)
		}
		got = nil
		for err == nil {
			var r *gpb.SubscribeResponse
			if r, err = stream.Recv(); r.GetSyncResponse() {
				break
			}
			got = append(got, r.GetUpdate().GetUpdate()...)
		}
		if err != nil || len(got) != 1 || got[0].GetVal().GetStringVal() != fmt.Sprint(i) {
			t.Errorf("subscription to %.20q: %v, %v", k, got, err)
		}
	}
	list := path("/collector/certificates")
	res, err := api.Get(t.Context(), &gpb.GetRequest{Path: []*gpb.Path{list}, Encoding: gpb.Encoding_JSON_IETF})
	if err != nil {
		t.Fatal(err)
	}
	text := res.GetNotification()[0].GetUpdate()[0].GetVal().GetJsonIetfVal()
	var all map[string][]struct{ File string }
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 1 {
		t.Fatalf("%v: %.300s", err, text)
	}
	for _, rows := range all {
		var names []string
		for _, r := range rows {
			names = append(names, r.File)
		}
		slices.Sort(names)
		slices.Sort(keys)
		if !slices.Equal(names, keys) {
			t.Errorf("JSON has the keys %.300q", names)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/settings/yaml"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// checkSchema checks by ygot's bindings all that a run published, which has rows in every list.
func checkSchema(t *testing.T, tap *store.Tap, st *store.Store) {
	t.Helper()
	newest := map[string]*table.Table{}
	for b := range tap.C() {
		for _, p := range b.Tables {
			if old := newest[p.Table.List]; !p.Delete && (old == nil || p.Table.Rows() >= old.Rows()) {
				newest[p.Table.List] = p.Table
			}
		}
	}
	if n := tap.Dropped(); n > 0 {
		t.Errorf("%d batches were not seen", n)
	}
	for _, list := range []string{
		"/netsketch-univmon:univmon/node-summaries/node-summary", "/netsketch-univmon:univmon/heavy-hitters/heavy-hitter",
		"/netsketch-univmon:univmon/heavy-changes/heavy-change", "/netsketch-univmon:univmon/ddos-victims/ddos-victim",
		"/netsketch-collector:collector/devices/device", "/netsketch-collector:collector/plugins/plugin",
	} {
		if tab := newest[list]; tab == nil || tab.Rows() == 0 {
			t.Errorf("nothing was published in %s", list)
		}
	}
	for _, tab := range newest {
		yangtest.Check(t, tab.Slice(0, min(tab.Rows(), 500)))
		checkReferences(t, tab, st)
	}
}

// checkReferences checks that the nodes, ports and links that a table refers to are in the lists of
// /topology.
func checkReferences(t *testing.T, tab *table.Table, st *store.Store) {
	t.Helper()
	list, err := yangtest.Schema(t).List(tab.List)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range slices.Concat(tab.Keys, tab.Values) {
		leaf := list.Leaf(c.Name)
		if leaf == nil || !strings.HasPrefix(leaf.Target, "/netsketch-topology:topology/") {
			continue
		}
		target := strings.TrimPrefix(strings.TrimSuffix(leaf.Target, "/state/name"), "/netsketch-topology:")
		known := map[string]bool{}
		for row := range st.View().Rows(store.ParseQuery("", "/"+target)) {
			known[row.Entry.Keys[0].String()] = true
		}
		for row := range tab.Rows() {
			if !c.Null(row) && !known[c.Text(row)] {
				t.Fatalf("%s: %s is %s, which is not in %s", tab.RowPath(row), c.Name, c.Text(row), target)
			}
		}
	}
}

// Every leaf of ChameleMon's module is published over gNMI in a run that covers all of them, the
// schema accepts all, and the dashboard queries nothing else.
func TestEveryChameleMonLeafIsPublished(t *testing.T) {
	s := load(t, "tasks", 4)
	s.WarmUp = 0 // flows are watched only after the warm-up
	s.Watch, s.Expect, s.Traffic[0].Flows, s.Traffic[1].Flows, s.Traffic[0].MaxPackets = 20, nil, 2500, 300, 6
	// First it cannot be decoded, and then the network turns ill.
	s.Traffic[0].Changes = []traffic.Change{{From: s.Epoch, Flows: 11_000,
		Victims: &traffic.Victims{Share: 0.75, Loss: 0.3}}}
	var err error
	if s.Algorithms[0], err = yaml.Section("all.yaml", `
plugin: chamelemon
config: {start: {high: 4}, heavy-hitters: {packets: 5, share: 0}, heavy-changes: {packets: 5}}`); err != nil {
		t.Fatal(err)
	}
	published := map[[2]string]bool{} // list, or container, and leaf
	var defined [][2]string
	_, w := playWatched(t, s, func(run *scenario.Run, i int) error {
		updates, err := once(t, connect(t, run.Address()), path("chamelemon"))
		if err != nil {
			return err
		}
		for _, u := range updates {
			if p := u.GetPath().GetElem(); len(p) >= 4 && p[len(p)-2].GetName() == "state" {
				published[[2]string{p[len(p)-3].GetName(), p[len(p)-1].GetName()}] = true
			}
		}
		if i < s.Epochs-1 {
			return nil
		}
		if refused := leaf(t, run.Address(), pluginPath("chamelemon", "rows-refused")).GetUintVal(); refused > 0 {
			t.Errorf("%d rows were refused", refused)
		}
		top, err := run.Collector().Schema().Node("/netsketch-chamelemon:chamelemon")
		if err != nil {
			return err
		}
		defined = stateLeaves(top)
		return nil
	})
	if len(defined) < 80 {
		t.Fatalf("the module has %d leaves of state", len(defined))
	}
	for _, d := range defined {
		if port := []string{"interface", "link", "port-number"}; d[0] == "alert" && slices.Contains(port, d[1]) {
			continue // no alert of ChameleMon is about a link
		}
		if !published[d] {
			t.Errorf("%s of %s was never published", d[1], d[0])
		}
	}
	dashboard, err := os.ReadFile("../../configs/grafana/dashboards/netsketch-chamelemon.json")
	if err != nil {
		t.Fatal(err)
	}
	queries := regexp.MustCompile(`"query": "SELECT (.*) FROM \\"chamelemon/([a-z-]+)\\"`).FindAllStringSubmatch(
		string(dashboard), -1)
	if len(queries) < 20 {
		t.Fatalf("%d queries", len(queries))
	}
	for _, q := range queries {
		for _, field := range regexp.MustCompile(`(?:^|[ (,])\\"([a-z-]+)\\"`).FindAllStringSubmatch(
			regexp.MustCompile(` AS \\"[a-z-]+\\"`).ReplaceAllString(q[1], ""), -1) {
			if field[1] != "ended" && !published[[2]string{q[2], field[1]}] { // the output adds the field ended
				t.Errorf("the dashboard queries %s of %s, which was never published", field[1], q[2])
			}
		}
	}
	if t.Failed() {
		t.Log(w.String())
	}
}

// stateLeaves lists the leaves of a subtree that are in containers named state, with the node above
// the container.
func stateLeaves(n *yang.Node) (out [][2]string) {
	for _, c := range n.Children() {
		if n.Name == "state" {
			out = append(out, [2]string{n.Parent.Name, c.Name})
		}
		out = append(out, stateLeaves(c)...)
	}
	return out
}

// path is a path without keys.
func path(elems ...string) *gnmi.Path {
	p := &gnmi.Path{}
	for _, e := range elems {
		p.Elem = append(p.Elem, &gnmi.PathElem{Name: e})
	}
	return p
}

// connect dials a gNMI server in plaintext.
func connect(t *testing.T, addr string) gnmi.GNMIClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return gnmi.NewGNMIClient(conn)
}

// once returns the updates of a ONCE subscription, with whole paths.
func once(t *testing.T, c gnmi.GNMIClient, p *gnmi.Path) ([]*gnmi.Update, error) {
	t.Helper()
	stream, err := c.Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&gnmi.SubscribeRequest{Request: &gnmi.SubscribeRequest_Subscribe{Subscribe: &gnmi.SubscriptionList{
		Mode: gnmi.SubscriptionList_ONCE, Encoding: gnmi.Encoding_PROTO, Subscription: []*gnmi.Subscription{{Path: p}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	var out []*gnmi.Update
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		for _, u := range resp.GetUpdate().GetUpdate() {
			u.Path = &gnmi.Path{Elem: slices.Concat(resp.GetUpdate().GetPrefix().GetElem(), u.GetPath().GetElem())}
			out = append(out, u)
		}
	}
}

// A third party's plugin is built in a module of its own, which imports neither P4Runtime nor gNMI.
// The binary alone adds its YANG module to Capabilities, and its paths can be subscribed to.
func TestThirdPartyPluginIsServed(t *testing.T) {
	dir := t.TempDir()
	if err := testkit.BuildPlugins(dir, "hello", "univmon"); err != nil {
		t.Fatal(err)
	}
	s := small(t, "  - {plugin: hello, config: {objects: \"*\"}}\n")
	s.Epochs = 2
	run, err := scenario.Open(t.Context(), s,
		scenario.Options{Compiler: &compiler, PluginDir: dir, Listen: "127.0.0.1:0", Web: "127.0.0.1:0", Virtual: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := run.Play(t.Context()); err != nil {
		t.Fatal(err)
	}
	pages, err := http.Get(run.ConsoleURL() + "api/schema")
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Body.Close()
	tree, err := io.ReadAll(pages.Body)
	if err != nil || !strings.Contains(string(tree), `"name":"hello","module":"acme-hello"`) {
		t.Errorf("the console has no page for the plugin: %v, %.200s", err, tree)
	}
	c := connect(t, run.Address())
	capabilities, err := c.Capabilities(t.Context(), &gnmi.CapabilityRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(capabilities.GetSupportedModels(),
		func(m *gnmi.ModelData) bool { return m.GetName() == "acme-hello" }) {
		t.Errorf("acme-hello is not among the models: %v", capabilities.GetSupportedModels())
	}
	fill := &gnmi.Path{Elem: []*gnmi.PathElem{
		{Name: "hello"}, {Name: "arrays"}, {Name: "array", Key: map[string]string{"node": "leaf1"}}, {Name: "state"},
		{Name: "used-cells"},
	}}
	updates, err := once(t, c, fill)
	if err != nil {
		t.Fatal(err)
	}
	if len(updates) != 5 { // counters and heavy keys of two dimensions, packets without a flow
		t.Errorf("%d arrays of leaf1 have results, want 5", len(updates))
	}
	for _, u := range updates {
		object := u.GetPath().GetElem()[2].GetKey()["object"]
		if used, none := u.GetVal().GetUintVal(), object == "ingress.unparsed"; (used == 0) != none {
			t.Errorf("%s: %d cells in use; all packets have a flow", object, used)
		}
	}
	fill.Elem[4] = &gnmi.PathElem{Name: "used-cell"}
	_, err = once(t, c, fill)
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "used-cell") {
		t.Errorf("a path outside of the schema: %v", err)
	}
}

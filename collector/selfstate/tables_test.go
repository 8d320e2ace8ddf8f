// SPDX-License-Identifier: Apache-2.0

package selfstate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openconfig/ygot/ygot"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/collector/schema"
	"github.com/netsketch/netsketch/internal/store"
	chamelemon "github.com/netsketch/netsketch/plugins/chamelemon/plugin"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/bindings"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// cells lists the non-null cells of tables as "LIST[key] COLUMN=VALUE".
func cells(publications []store.Publication) []string {
	var out []string
	for _, p := range publications {
		if p.Table.Rows() == 0 {
			out = append(out, fmt.Sprintf("%s empty", strings.TrimPrefix(p.Table.List, Root)))
		}
		for row := range p.Table.Rows() {
			for _, c := range p.Table.Values {
				if !c.Null(row) {
					out = append(out, fmt.Sprintf("%s %s=%v", strings.TrimPrefix(p.Table.RowPath(row), Root), c.Name,
						c.Value(row)))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func TestTablesOfTrees(t *testing.T) {
	state := &bindings.Collector{
		Name: ygot.String("c"), Subscriptions: ygot.Uint32(3),
		Epoch: &bindings.Collector_Epoch{Status: bindings.Types_EpochStatus_PARTIAL, Number: ygot.Uint64(7)},
		Device: map[string]*bindings.Collector_Device{
			"s2": {Node: ygot.String("s2"), Connection: bindings.Device_Connection_READY},
			"s1": {Node: ygot.String("s1"), DeviceId: ygot.Uint64(4),
				Gnmi: &bindings.Collector_Device_Gnmi{Ports: ygot.Uint32(2)}},
		},
		Link: map[string]*bindings.Collector_Link{},
	}
	config := &bindings.Collector{
		Name: ygot.String("c"), Guard: ygot.Uint64(5),
		Device: map[string]*bindings.Collector_Device{
			"s1": {Node: ygot.String("s1"), DeviceId: ygot.Uint64(1)},
			"s3": {Node: ygot.String("s3"), Gnmi: &bindings.Collector_Device_Gnmi{Address: ygot.String("h:1")}},
		},
	}
	var f flattener
	for range 2 { // the second round uses cached shapes
		got, err := f.publications(Root, state, config)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"/config guard=5", "/config name=c",
			"/devices/device[node=s1] config/device-id=1", "/devices/device[node=s1] gnmi/state/ports=2",
			"/devices/device[node=s1] state/device-id=4",
			"/devices/device[node=s2] state/connection=READY",
			"/devices/device[node=s3] gnmi/config/address=h:1",
			"/epoch/state number=7", "/epoch/state status=PARTIAL",
			"/links/link empty",
			"/state name=c", "/state subscriptions=3",
		}
		if diff := cmp.Diff(want, cells(got)); diff != "" {
			t.Errorf("cells (-want +got):\n%s", diff)
		}
		for _, p := range got {
			if keyed := len(p.Table.Keys) > 0; p.Replace != keyed {
				t.Errorf("%s: Replace %v", p.Table.List, p.Replace)
			}
		}
	}
}

// The schema refuses a decimal that is not a number; its error names row and column, and the table
// is not published without it.
func TestDecimalsAreFinite(t *testing.T) {
	r, err := schema.New(yang.CollectorModules())
	if err == nil {
		err = r.Adopt(chamelemon.New().Describe())
	}
	if err != nil {
		t.Fatal(err)
	}
	var f flattener
	for value, refused := range map[float64]string{0.5: "", math.Inf(1): "+Inf", math.NaN(): "NaN"} {
		got, err := f.publications("/netsketch-chamelemon:chamelemon/attention",
			&bindings.Chamelemon_Attention{SampleRate: &value}, &bindings.Chamelemon_Attention{})
		if err != nil {
			t.Fatal(err)
		}
		err = r.Validate(got[0].Table)
		if want := "attention/state: sample-rate: " +
			"" + refused + " is not a finite number"; refused == "" && err != nil ||
			refused != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v: error %v, want %q", value, err, want)
		}
	}
}

// Structs with parts that a table cannot hold are refused, not skipped.
func TestTablesOfUnsupportedTrees(t *testing.T) {
	var f flattener
	for _, tree := range []ygot.GoStruct{&bindings.Lldp{Interface: map[string]*bindings.Lldp_Interface{}},
		&bindings.Interface{}} {
		if _, err := f.publications("/x:y", tree, tree); err == nil || !strings.Contains(err.Error(), "selfstate: ") {
			t.Errorf("%T: error %v", tree, err)
		}
	}
}

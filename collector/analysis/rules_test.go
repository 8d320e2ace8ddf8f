// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// extraModule is a plugin that also brings a module with a number without units.
type extraModule struct{ *fakePlugin }

func (p extraModule) Describe() sdk.Description {
	d := p.fakePlugin.Describe()
	d.Modules = append(slices.Clone(d.Modules), sdk.Module{Name: "acme-extra", Text: `module acme-extra {
  namespace "urn:acme"; prefix "a"; revision "2026-11-27";
  container extra {
    config false;
    description "Extra.";
    container state { description "Extra."; leaf n { type uint32; description "A number."; } }
  }
}`})
	return d
}

// TestModuleRules: a plugin whose module breaks a rule runs, and the log names the module, the line
// and the rule.
func TestModuleRules(t *testing.T) {
	r := newRigWith(t, nil, func(d *Dependencies) {
		d.Launch = func(_ context.Context, spec pluginhost.Spec) (Instance, error) {
			return extraModule{&fakePlugin{spec: spec}}, nil
		}
	}, "fake")
	if failed := r.c.Failed(); len(failed) > 0 {
		t.Error(failed)
	}
	const want = "plugin fake: acme-extra.yang:6:45: /acme-extra:extra/state/n is a number without units"
	if log := r.log.String(); strings.Count(log, want) != 1 || !strings.Contains(log, "warnings=1") {
		t.Errorf("the log lacks %q:\n%s", want, log)
	}
}

// TestFlowFields: published rows of flows and rows of queries have the fields of their flow.
func TestFlowFields(t *testing.T) {
	r := newRig(t, nil, "fake")
	r.plugins["fake"].do(func(p *fakePlugin) {
		p.analyze = func(context.Context, *sdk.Epoch) (*sdk.Results, error) {
			return &sdk.Results{Tables: []sdk.TableResult{flowTable(t, listFlows, "10.0.0.1")}}, nil
		}
		p.query = func(context.Context, sdk.RowKey) ([]sdk.TableResult, uint64, error) {
			return []sdk.TableResult{flowTable(t, listFlows, "10.0.0.1")}, 1, nil
		}
	})
	r.deliver().Wait()
	asked, err := r.c.Query(t.Context(), "netsketch", listFlows,
		map[string]string{"node": "s1", "dimension": "src", "flow": "10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, view := range map[string]*store.View{"published": r.store.View(), "queried": asked} {
		rows := 0
		view.Rows(store.ParseQuery("", "/univmon/flows/flow/state/source-address"))(
			func(row *store.Row, _ store.Meta) bool {
				for i, l := range row.List.Leaves {
					if l.Name == "state/source-address" && row.Values[i].String() == "10.0.0.1" {
						rows++
					}
				}
				return true
			})
		if rows != 1 {
			t.Errorf("%s: %d rows have a source address", name, rows)
		}
	}
}

// TestEarlierRangesFirst: tables of an earlier range are published before those of the epoch,
// whatever their order in the results.
func TestEarlierRangesFirst(t *testing.T) {
	r := newRig(t, nil, "fake")
	r.plugins["fake"].do(func(p *fakePlugin) {
		p.analyze = func(_ context.Context, e *sdk.Epoch) (*sdk.Results, error) {
			earlier := flowTable(t, listFlows, "10.0.0.1")
			earlier.End = e.Start
			return &sdk.Results{Tables: []sdk.TableResult{summary(1), earlier}}, nil
		}
	})
	tap := r.store.Tap(16)
	defer tap.Close()
	r.deliver().Wait()
	var published []string
	for range 2 {
		for _, p := range (<-tap.C()).Tables {
			published = append(published, p.Table.List)
		}
	}
	if len(published) != 2 || published[0] != listFlows {
		t.Errorf("published %v, want %s first", published, listFlows)
	}
}

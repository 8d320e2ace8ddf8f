// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/record"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/yang/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const module = `module acme-sums {
  yang-version 1.1;
  namespace "urn:acme:sums";
  prefix sums;
  revision 2026-01-01;
  container sums {
    list sum {
      config false;
      key "node";
      leaf node { type leafref { path "../state/node"; } }
      container state {
        leaf node { type string; }
        leaf cells { type uint32; }
      }
    }
  }
}`

const list = "/acme-sums:sums/sum"

// sums is a plugin that counts cells. An object whose name begins with "bad" makes it misbehave.
type sums struct{}

func (sums) Describe() sdk.Description {
	return sdk.Description{Name: "sums", Version: "1", Modules: []sdk.Module{{Name: "acme-sums", Text: module}},
		Lists: []sdk.List{{Path: list, Watchable: true}}}
}

func (sums) Configure(_ context.Context, c sdk.Config, n sdk.Network) (sdk.Settings, error) {
	var config struct {
		Refuse string `yaml:"refuse"`
	}
	if err := c.Decode(&config); err != nil {
		return sdk.Settings{}, err
	}
	if config.Refuse != "" {
		return sdk.Settings{}, settings.KeyError{Key: "refuse", Message: config.Refuse}
	}
	bindings, missing := n.Bind([]sdk.ObjectNeed{{Name: "*cells*"}, {Name: "absent"}})
	return sdk.Settings{Bindings: bindings, Missing: missing}, nil
}

func (sums) Analyze(_ context.Context, e *sdk.Epoch) (*sdk.Results, error) {
	b := table.NewBuilder(list)
	device, cells := b.TextKey("node"), b.Uint("state/cells")
	out := &sdk.Results{}
	for _, d := range e.Devices {
		n := 0
		for _, o := range d.Objects {
			switch o.Object {
			case "narrow":
				return nil, fmt.Errorf("cells of %d bits", o.Width)
			case "bad":
				return nil, errors.New("bad object")
			case "bad list":
				b = table.NewBuilder("/acme-sums:sums/other")
				device, cells = b.TextKey("node"), b.Uint("state/cells")
			case "bad value":
				n = 1 << 40
			case "bad plan":
				out.Plans = []sdk.Plan{{FromEpoch: 9, Writes: []sdk.DeviceWrite{{Device: "s9", Op: sdk.Delete,
					Entry: sdk.TableEntry{Table: "t"}}}}}
			}
			n += o.Len()
		}
		device.Append(d.Name)
		cells.Append(uint64(n))
	}
	for _, w := range e.Watched {
		device.Append("watched " + w.Keys["node"])
		cells.Append(0)
	}
	t, err := b.Table()
	if err != nil {
		return nil, err
	}
	out.Add(t, nil)
	return out, nil
}

var network = sdk.Network{Version: 1, Devices: []sdk.Device{{Name: "s1",
	Objects: []sdk.Object{{Name: "in.cells", Cells: 4, Width: 32, Banks: 1},
		{Name: "narrow", Cells: 1, Width: 16, Banks: 1}}}}}

func epoch(number uint64, object string, n int, watched ...sdk.RowKey) *sdk.Epoch {
	e := &sdk.Epoch{Number: number, Start: time.Unix(1, 0), End: time.Unix(2, 0), Status: sdk.StatusComplete,
		Watched: watched}
	e.Put("s1", sdk.CellsOf(object, make([]uint16, n)))
	return e
}

func TestHarness(t *testing.T) {
	h := Start(t, sums{}, Options{Network: network})
	watch := sdk.RowKey{List: list, Keys: map[string]string{"node": "x"}}
	got := Text(h.Analyze(epoch(1, "cells", 3)), h.Analyze(epoch(2, "cells", 2_000_000, watch)),
		h.Analyze(epoch(3, "cells", 0)))
	want := `results 0
table /acme-sums:sums/sum target="" replace=true rows=1
  [node=s1] state/cells=3
results 1
table /acme-sums:sums/sum target="" replace=true rows=2
  [node=s1] state/cells=2000000
  [node=watched x] state/cells=0
results 2
table /acme-sums:sums/sum target="" replace=true rows=1
  [node=s1] state/cells=0
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
	s := h.Settings()
	if len(s.Bindings) != 1 || s.Bindings[0] != (sdk.Binding{Device: "s1", Object: "in.cells"}) ||
		len(s.Missing) != 1 || s.Missing[0].Object != "absent" {
		t.Errorf("settings %+v", s)
	}
	if d := h.Description(); d.Capabilities.Query || d.Capabilities.Merge || !d.Capabilities.Watch {
		t.Errorf("capabilities %+v", d.Capabilities)
	}
	if _, err := h.Query(watch); err == nil || !strings.Contains(err.Error(), "Unimplemented") {
		t.Errorf("query: %v", err)
	}
	for object, text := range map[string]string{"bad": "bad object", "narrow": "cells of 32 bits",
		"bad list":  "does not declare",
		"bad value": "1099511627777", "bad plan": `plan from epoch 9: write 0: the network has no device "s9"`} {
		if _, err := h.TryAnalyze(epoch(4, object, 1)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", object, err)
		}
	}
	noTimes := epoch(5, "cells", 1)
	noTimes.Start, noTimes.End = time.Time{}, time.Time{}
	if _, err := h.TryAnalyze(noTimes); err == nil || !strings.Contains(err.Error(), "set Start and End") {
		t.Errorf("an epoch without times: %v", err)
	}
	var fields settings.KeyErrors
	for config, text := range map[string]string{`{"refuse":"no"}`: "refuse: no", `{"refus":1}`: `unknown key "refus"`,
		`{"refuse":[1]}`: "refuse: expected text; found a list", `{} {}`: "text after"} {
		if _, err := h.Configure(config, network, 0); !errors.As(err, &fields) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", config, err)
		}
	}
}

func TestReplayAndGolden(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epochs")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := record.NewWriter(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Configure(record.Setup{Network: network, EpochLength: time.Second}); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(3) {
		if err := w.Write(epoch(n, "cells", int(n))); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	results := Start(t, sums{}, Options{}).Replay(path)
	if len(results) != 3 {
		t.Fatalf("%d results", len(results))
	}
	golden := filepath.Join(t.TempDir(), "sub", "golden")
	Golden(t, golden, true, results...)
	Golden(t, golden, false, results...)
	probe := &probe{TB: t}
	func() {
		defer func() { _ = recover() }()
		Golden(probe, golden, false, results[:2]...)
	}()
	if !strings.Contains(probe.text, "golden:7") {
		t.Errorf("a difference is reported as %q", probe.text)
	}
}

// probe records a test failure instead of failing.
type probe struct {
	testing.TB
	text string
}

func (p *probe) Helper() {}

func (p *probe) Fatalf(format string, args ...any) {
	p.text = fmt.Sprintf(format, args...)
	panic(p)
}

// wrongRow is a plugin that replies to every query with the same row.
type wrongRow struct{ sums }

func (p wrongRow) Query(ctx context.Context, _ sdk.RowKey) ([]*table.Table, uint64, error) {
	r, err := p.Analyze(ctx, epoch(1, "cells", 1))
	if err != nil {
		return nil, 0, err
	}
	return []*table.Table{r.Tables[0].Table}, 1, nil
}

func TestQueryOfWrongRow(t *testing.T) {
	h := Start(t, wrongRow{}, Options{Network: network})
	if _, err := h.Query(sdk.RowKey{List: list, Keys: map[string]string{"node": "s1"}}); err != nil {
		t.Error(err)
	}
	_, err := h.Query(sdk.RowKey{List: list, Keys: map[string]string{"node": "s2"}})
	if err == nil || !strings.Contains(err.Error(), "has 1 rows, none of them with these keys") {
		t.Error(err)
	}
}

// noModule is a plugin that declares a list without a module.
type noModule struct{ sums }

func (noModule) Describe() sdk.Description {
	return sdk.Description{Name: "lost", Lists: []sdk.List{{Path: "/acme-none:a/b"}}}
}

func TestUnusableDescription(t *testing.T) {
	if _, err := start(t, noModule{}, Options{}); err == nil || !strings.Contains(err.Error(), "/acme-none:a/b") {
		t.Error(err)
	}
}

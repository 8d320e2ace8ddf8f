// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

// flowTable returns a table with one row per flow of device s1, for dimension src.
func flowTable(t *testing.T, list string, flows ...string) sdk.TableResult {
	t.Helper()
	b := table.NewBuilder(list)
	device, dimension, flow, packets := b.TextKey("node"), b.TextKey("dimension"), b.TextKey("flow"),
		b.Uint("state/packets")
	for i, f := range flows {
		device.Append("s1")
		dimension.Append("src")
		flow.Append(f)
		packets.Append(uint64(10 * (i + 1)))
	}
	out, err := b.Table()
	if err != nil {
		t.Fatal(err)
	}
	return sdk.TableResult{Table: out}
}

// summary returns a table with the entropies of the dimensions of device s1.
func summary(entropy ...float64) sdk.TableResult {
	dimensions := []string{"src", "dst", "5-tuple"}[:len(entropy)]
	device := slices.Repeat([]string{"s1"}, len(entropy))
	return sdk.TableResult{Table: &table.Table{List: listSummaries,
		Keys:   []table.Column{table.Strings("node", device), table.Strings("dimension", dimensions)},
		Values: []table.Column{table.Float64s("state/entropy", entropy)},
	}}
}

// nanSummary is the part of an error that names the cell of a summary.
const nanSummary = listSummaries + "[node=s1][dimension=src]: state/entropy: NaN is not a finite number"

func TestQuery(t *testing.T) {
	r := newRig(t, nil, "fake")
	r.deliver().Wait()
	r.deliver().Wait()
	var asked sdk.RowKey
	r.plugins["fake"].query = func(_ context.Context, row sdk.RowKey) ([]sdk.TableResult, uint64, error) {
		asked = row
		return []sdk.TableResult{flowTable(t, listFlows, "10.0.0.1", "10.0.0.2")}, 1, nil
	}
	keys := map[string]string{"node": "s1", "dimension": "src", "flow": "10.0.0.2"}
	view, err := r.c.Query(t.Context(), "netsketch", listFlows, keys)
	if err != nil {
		t.Fatal(err)
	}
	if asked.Target != "" || asked.List != listFlows || asked.Keys["flow"] != "10.0.0.2" {
		t.Errorf("the plugin was asked for %+v", asked)
	}
	rows := 0
	view.Rows(store.ParseQuery("", "/univmon/flows/flow[flow=10.0.0.2]/state/packets"))(
		func(row *store.Row, m store.Meta) bool {
			rows++
			if want := t0.Add(2 * time.Second); row.Entry.Target != "netsketch" || m.Epoch != 1 || !m.Time.Equal(want) {
				t.Errorf("target %s, epoch %d, time %v; want netsketch, 1, %v", row.Entry.Target, m.Epoch, m.Time, want)
			}
			for i, l := range row.List.Leaves {
				if l.Name == "state/packets" && row.Values[i].String() != "20" {
					t.Errorf("packets %s, want 20", row.Values[i])
				}
			}
			return true
		})
	if rows != 1 {
		t.Errorf("%d rows, want 1", rows)
	}
	if n := r.store.Size("", listFlows); n != 0 {
		t.Errorf("the answer is in the store: %d rows", n)
	}
}

func TestQueryErrors(t *testing.T) {
	keys := map[string]string{"node": "s1", "dimension": "src", "flow": "10.0.0.1"}
	answer := func(tables []sdk.TableResult, err error) func(context.Context, sdk.RowKey) ([]sdk.TableResult, uint64,
		error) {
		return func(context.Context, sdk.RowKey) ([]sdk.TableResult, uint64, error) { return tables, 1, err }
	}
	for name, test := range map[string]struct {
		target, list string
		keys         map[string]string
		query        func(context.Context, sdk.RowKey) ([]sdk.TableResult, uint64, error)
		want         error
		code         codes.Code
		text, log    string
	}{
		"no publisher": {
			list: "/netsketch-collector:collector/devices/device", keys: map[string]string{"node": "s1"},
			want: ErrNoPublisher, code: codes.NotFound,
		},
		"no such list": {list: "/netsketch-univmon:univmon/nothing", keys: keys, want: ErrNoPublisher,
			code: codes.NotFound, text: "nothing"},
		"not watchable": {list: listSummaries, keys: map[string]string{"node": "s1", "dimension": "src"},
			want: ErrNotWatchable, code: codes.NotFound},
		"no queries": {want: pluginhost.ErrNoCapability, code: codes.NotFound},
		"a key is missing": {
			keys: map[string]string{"node": "s1", "flow": "10.0.0.1"}, want: ErrKeys, code: codes.InvalidArgument,
			text: "[dimension flow node]",
		},
		"no such device": {target: "s9", want: ErrNoRow, code: codes.NotFound, text: `"s9"`},
		"not running": {
			query: answer(nil, pluginhost.ErrNotRunning), want: pluginhost.ErrNotRunning, code: codes.Unavailable,
			text: "plugin fake",
		},
		"refused": {
			query: answer(nil, errors.Join(pluginhost.ErrRefused, errors.New("flow is not an address"))),
			want:  pluginhost.ErrRefused, code: codes.FailedPrecondition, text: "flow is not an address",
		},
		"invalid": {query: answer(nil, pluginhost.ErrInvalidResults), want: pluginhost.ErrInvalidResults,
			code: codes.Internal, log: "invalid rows"},
		"not a number": {
			query: answer([]sdk.TableResult{summary(math.NaN())}, nil), want: pluginhost.ErrInvalidResults,
			code: codes.Internal, text: "plugin fake: plugin sent invalid results: yang: " + nanSummary,
			log: "invalid rows",
		},
		"no row": {query: answer(nil, nil), want: ErrNoRow, code: codes.NotFound},
		"another row": {
			query: answer([]sdk.TableResult{flowTable(t, listFlows, "10.0.0.9")}, nil), want: ErrNoRow,
			code: codes.NotFound, log: "other rows",
		},
		"deadline": {query: func(ctx context.Context, _ sdk.RowKey) ([]sdk.TableResult, uint64, error) {
			<-ctx.Done()
			return nil, 0, pluginhost.ErrTimeout
		}, want: context.DeadlineExceeded, code: codes.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, "fake")
			r.plugins["fake"].query = test.query
			if test.list == "" {
				test.list = listFlows
			}
			if test.keys == nil {
				test.keys = keys
			}
			limit := time.Minute
			if errors.Is(test.want, context.DeadlineExceeded) {
				limit = 200 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := r.c.Query(ctx, test.target, test.list, test.keys)
			var failed *QueryError
			if !errors.Is(err, test.want) || !errors.As(err, &failed) || failed.List != test.list {
				t.Errorf("error %v, want %v", err, test.want)
			}
			if code := status.Code(err); code != test.code || !strings.Contains(err.Error(), test.text) {
				t.Errorf("code %v, want %v; error %v, want %q in it", code, test.code, err, test.text)
			}
			_, logged, _ := strings.Cut(r.log.String(), "plugin replies to a query with ")
			if logged, _, _ = strings.Cut(logged, `" plugin=fake`); logged != test.log {
				t.Errorf("logged %q, want %q; the log is\n%s", logged, test.log, r.log)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

// Queries: one row of a watchable list, computed by its plugin on request.

package analysis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// QueryTimeout bounds a query whose context has no earlier deadline.
const QueryTimeout = 2 * time.Second

// Reasons why a query fails; QueryError wraps them.
var (
	// ErrNoPublisher: no running plugin declares the list.
	ErrNoPublisher = errors.New("no running plugin computes rows of this list")
	// ErrNotWatchable: the plugin does not compute rows of the list on request.
	ErrNotWatchable = errors.New("rows of this list cannot be queried")
	// ErrKeys: the query does not give exactly the keys of the list.
	ErrKeys = errors.New("a query gives every key of its list")
	// ErrNoRow: the plugin has no value for the row.
	ErrNoRow = errors.New("the plugin has no value for this row")
)

// QueryError says why a query failed.
type QueryError struct {
	List   string
	Plugin string // empty if the query reached no plugin
	// Err wraps one of the reasons above, an error of pluginhost.Instance.Query or
	// pluginhost.ErrInvalidResults, or context.DeadlineExceeded.
	Err error
}

// Error names the list, the plugin and the reason.
func (e *QueryError) Error() string {
	if e.Plugin == "" {
		return fmt.Sprintf("query %s: %v", e.List, e.Err)
	}
	return fmt.Sprintf("query %s: plugin %s: %v", e.List, e.Plugin, e.Err)
}

func (e *QueryError) Unwrap() error { return e.Err }

// GRPCStatus makes status.FromError give the code that fits the reason.
func (e *QueryError) GRPCStatus() *status.Status {
	code := codes.Internal
	for _, c := range []struct {
		err  error
		code codes.Code
	}{
		{ErrNoPublisher, codes.NotFound}, {ErrNotWatchable, codes.NotFound}, {ErrNoRow, codes.NotFound},
		{pluginhost.ErrNoCapability, codes.NotFound}, {ErrKeys, codes.InvalidArgument},
		{pluginhost.ErrRefused, codes.FailedPrecondition},
		{pluginhost.ErrNotRunning, codes.Unavailable}, {pluginhost.ErrStopped, codes.Unavailable},
		{context.DeadlineExceeded, codes.DeadlineExceeded}, {context.Canceled, codes.Canceled},
	} {
		if errors.Is(e.Err, c.err) {
			code = c.code
			break
		}
	}
	return status.New(code, e.Error())
}

// Query requests one row of a watchable list from the plugin that publishes the list, computed
// from the plugin's latest epochs. The row need not be in the store, and the result is not stored:
// the returned view contains only this row.
//
// The target is a device's name, or empty or the store's default target for rows of the collector.
// The list is a schema path as in table.Table.List; keys has a value for every key leaf, in YANG's
// text form. The error is a *QueryError, which also carries a gRPC status.
func (c *Component) Query(ctx context.Context, target, list string, keys map[string]string) (*store.View, error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	row := sdk.RowKey{List: list, Target: target, Keys: keys}
	if target == c.deps.Store.DefaultTarget() {
		row.Target = ""
	}
	failed := &QueryError{List: list, Err: c.checkRow(row)}
	if failed.Err != nil {
		return nil, failed
	}
	failed.Err = ErrNoPublisher
	for _, p := range c.running() {
		i := slices.IndexFunc(p.inst.Describe().Lists, func(l sdk.List) bool { return l.Path == list })
		if i < 0 {
			continue
		}
		failed.Plugin, failed.Err = p.name, ErrNotWatchable
		if !p.inst.Describe().Lists[i].Watchable {
			continue
		}
		view, err := p.query(ctx, row)
		if err == nil {
			return view, nil
		}
		failed.Err = err
	}
	return nil, failed
}

// Watchable returns the schema paths of the lists whose rows Query can compute, in no order.
func (c *Component) Watchable() (lists []string) {
	for _, p := range c.running() {
		for _, l := range p.inst.Describe().Lists {
			if l.Watchable {
				lists = append(lists, l.Path)
			}
		}
	}
	return lists
}

// checkRow checks a row's target and keys against the schema.
func (c *Component) checkRow(row sdk.RowKey) error {
	if row.Target != "" && !c.deps.Network.IsDevice(row.Target) {
		return fmt.Errorf("%w: the target %q is not a device", ErrNoRow, row.Target)
	}
	list, err := c.deps.Schema.Current().List(row.List)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoPublisher, err)
	}
	want := make([]string, 0, len(list.Keys))
	for _, k := range list.Keys {
		want = append(want, k.Name)
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(row.Keys)); !slices.Equal(got, want) {
		return fmt.Errorf("%w: it has the keys %v, the query %v", ErrKeys, want, got)
	}
	return nil
}

// Answer replies to a query that another collector of the cluster forwards.
func (c *Component) Answer(ctx context.Context, plugin string, row sdk.RowKey) ([]sdk.TableResult, uint64, error) {
	p := c.plugin(plugin)
	if p == nil {
		return nil, 0, pluginhost.ErrNotRunning
	}
	return p.inst.Query(ctx, row)
}

// query requests a row from the plugin and returns it as a view.
func (p *plugin) query(ctx context.Context, row sdk.RowKey) (*store.View, error) {
	ask := p.inst.Query
	if cluster := p.c.deps.Cluster; cluster != nil && !cluster.Home(p.name, 0) {
		ask = func(ctx context.Context, row sdk.RowKey) ([]sdk.TableResult, uint64, error) {
			return cluster.Query(ctx, p.name, row)
		}
	}
	tables, number, err := ask(ctx, row)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the plugin did not reply in time: %w", ctx.Err())
	}
	if err == nil {
		err = p.validate(tables)
	}
	if errors.Is(err, pluginhost.ErrInvalidResults) {
		p.c.log.Warn("plugin replies to a query with invalid rows", "plugin", p.name, "list", row.List, "keys", row.Keys,
			"error", err)
	}
	if err != nil {
		return nil, err
	}
	rows := 0
	for _, t := range tables {
		rows += t.Table.Rows()
		at := -1
		if t.Table.List == row.List {
			at = t.Table.Find(row.Keys)
		}
		if at < 0 {
			continue
		}
		batch := store.Batch{
			Target: row.Target, Time: p.c.endOf(number), Epoch: number,
			Tables: []store.Publication{{Table: t.Table.Slice(at, at+1), Replace: true}},
		}
		return p.c.deps.Store.Preview(batch)
	}
	if rows > 0 {
		p.c.log.Warn("plugin replies to a query with other rows", "plugin", p.name, "list", row.List, "keys", row.Keys,
			"rows", rows)
		return nil, fmt.Errorf("%w: it replied with %d rows of other keys", ErrNoRow, rows)
	}
	return nil, ErrNoRow
}

// endOf returns when an epoch ended, or the current time if the epoch was not delivered.
func (c *Component) endOf(number uint64) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		return c.deps.Clock.Now()
	}
	number = cmp.Or(number, c.last.number)
	return c.last.end.Add(time.Duration(int64(number)-int64(c.last.number)) * c.cfg.EpochLength)
}

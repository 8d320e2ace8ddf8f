// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// cluster is a Cluster with one other collector.
type cluster struct {
	home  atomic.Bool
	state atomic.Pointer[sdk.State]
	kept  atomic.Uint64 // epoch of the newest state that this collector kept
}

func (c *cluster) Keep(_, _ string, s *sdk.State) { c.kept.Store(s.Epoch) }

func (c *cluster) Home(string, uint64) bool { return c.home.Load() }

func (c *cluster) Watch([]store.Watch) {}

func (c *cluster) Watched() []store.Watch {
	return []store.Watch{{Target: "netsketch", List: listFlows, Keys: []string{"s1", "src", "10.0.0.1"}}}
}

func (c *cluster) Query(context.Context, string, sdk.RowKey) ([]sdk.TableResult, uint64, error) {
	return nil, 0, pluginhost.ErrRefused
}

func (c *cluster) State(context.Context, string, string) *sdk.State { return c.state.Load() }

// A collector analyzes a plugin's epochs only while the plugin is assigned to it. When a plugin
// moves here, it continues from the newest state of its previous collector.
func TestHome(t *testing.T) {
	states := &cluster{}
	states.state.Store(&sdk.State{Epoch: 1, Data: []byte("first")})
	r := newRigWith(t, nil, func(d *Dependencies) {
		d.Cluster = states
	}, "fake")
	p := r.plugins["fake"]
	if p.spec.State == nil || p.spec.State.Epoch != 1 {
		t.Errorf("starts with the state %+v", p.spec.State)
	}
	p.do(func(p *fakePlugin) {
		p.analyze = func(_ context.Context, e *sdk.Epoch) (*sdk.Results, error) {
			return &sdk.Results{State: &sdk.State{Epoch: e.Number, Data: []byte("memory")}}, nil
		}
	})
	deliver := func(here bool, plugins int) {
		t.Helper()
		states.home.Store(here)
		if rep := r.deliver().Wait(); len(rep.Plugins) != plugins {
			t.Errorf("epoch %d is reported by %+v", rep.Number, rep.Plugins)
		}
	}
	deliver(false, 0)
	deliver(true, 1) // continues from the state that it had at its start
	states.state.Store(&sdk.State{Epoch: 2, Data: []byte("its own")})
	deliver(true, 1)
	deliver(false, 0)
	states.state.Store(&sdk.State{Epoch: 4, Data: []byte("of the other")})
	deliver(true, 1)
	p.do(func(p *fakePlugin) {
		if !slices.Equal(p.epochs, []uint64{2, 3, 5}) || !slices.Equal(p.resumed, []uint64{4}) {
			t.Errorf("analyzed %v, resumed from %v", p.epochs, p.resumed)
		}
	})
	if got := states.kept.Load(); got != 5 {
		t.Errorf("the state of epoch %d is kept", got)
	}
}

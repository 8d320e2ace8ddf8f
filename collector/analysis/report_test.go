// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// A plugin that hangs does not delay the reports, and with them the collector's own state, by more
// than reportLag epochs. Reports stay in order.
func TestReportsDoNotWaitForAHangingPlugin(t *testing.T) {
	r := newRig(t, func(c *Config) {
		for i := range c.Plugins.Instances {
			c.Plugins.Instances[i].Deadline = time.Hour
		}
	}, "fast", "slow")
	fast, slow, release := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	r.plugins["fast"].do(func(p *fakePlugin) {
		p.analyze = func(context.Context, *sdk.Epoch) (*sdk.Results, error) {
			fast <- struct{}{}
			return &sdk.Results{}, nil
		}
	})
	r.plugins["slow"].do(func(p *fakePlugin) {
		p.analyze = func(ctx context.Context, _ *sdk.Epoch) (*sdk.Results, error) {
			slow <- struct{}{}
			select {
			case <-release:
				return &sdk.Results{}, nil
			case <-ctx.Done():
				return nil, pluginhost.ErrTimeout
			}
		}
	})
	const epochs = 6
	var last *Delivery
	for number := range epochs {
		last = r.deliver()
		<-fast // the plugin is at work, so the epoch before is answered
		if number == 0 {
			<-slow // the next epoch is queued
		}
	}
	limit := time.After(time.Minute)
	for number := uint64(1); number <= epochs; number++ {
		if number == epochs-reportLag+1 {
			close(release) // these reports are not due
		}
		var rep Report
		select {
		case rep = <-r.reports:
		case <-limit:
			t.Fatalf("no report of epoch %d", number)
		}
		want := ErrBusy
		if number <= 2 { // the epoch at work and the queued one
			want = ErrUnfinished
		}
		if rep.Number != number || rep.Plugins[0].Name != "fast" || rep.Plugins[0].Err != nil ||
			!errors.Is(rep.Plugins[1].Err, want) {
			t.Errorf("epoch %d: plugins %+v, want %v", rep.Number, rep.Plugins, want)
		}
	}
	if rep := last.Wait(); rep.Number != epochs {
		t.Errorf("report %+v", rep)
	}
	<-slow // the queued epoch
	last = r.deliver()
	<-fast
	<-slow
	if rep := last.Wait(); rep.Plugins[1].Err != nil {
		t.Errorf("after the release: %+v", rep)
	}
}

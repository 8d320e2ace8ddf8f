// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// A decimal that is no number loses the epoch of its plugin: the error names list, row and column,
// and the store, from which gNMI and InfluxDB read, receives nothing.
func TestDecimalsAreFinite(t *testing.T) {
	r := newRig(t, nil, "fake")
	for name, entropy := range map[string][]float64{"NaN": {1, math.NaN()}, "+Inf": {math.Inf(1)},
		"-Inf": {0, math.Inf(-1)}} {
		r.plugins["fake"].do(func(p *fakePlugin) {
			p.analyze = func(context.Context, *sdk.Epoch) (*sdk.Results, error) {
				return &sdk.Results{Tables: []sdk.TableResult{summary(entropy...)}}, nil
			}
		})
		row := []string{"src", "dst"}[len(entropy)-1]
		want := listSummaries + "[device=s1][dimension=" + row + "]: state/entropy: " + name + " is not a finite number"
		rep := r.deliver().Wait()
		if err := rep.Plugins[0].Err; !errors.Is(err, pluginhost.ErrInvalidResults) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
		if status := r.c.Status()[0]; status.Name != "fake" || !strings.Contains(status.LastError, want) {
			t.Errorf("%s: status %+v, want %q as last error", name, status, want)
		}
		if n := r.store.Size("", listSummaries); n != 0 {
			t.Errorf("%s: %d rows in the store", name, n)
		}
	}
	if !strings.Contains(r.log.String(), "plugin=fake") {
		t.Errorf("the log does not name the plugin:\n%s", r.log)
	}
}

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

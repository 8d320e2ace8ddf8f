// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// silentEntries is a store of entries that does not answer. It keeps how long a call may wait.
type silentEntries struct{ waits []time.Duration }

func (s *silentEntries) Take(ctx context.Context, _ string) (held p4rt.Desired, own bool, err error) {
	end, _ := ctx.Deadline()
	s.waits = append(s.waits, time.Until(end))
	<-ctx.Done()
	return held, false, ctx.Err()
}

func (s *silentEntries) Store(ctx context.Context, name string, _ p4rt.Desired) error {
	_, _, err := s.Take(ctx, name)
	return err
}

// The entries of all devices together have a quarter of an epoch, so that devices are handed over
// although the store does not answer.
func TestTimeToShareEntries(t *testing.T) {
	cfg, shared := parseConfig(t, "epoch: {interval: 1s}\n"+devicesYAML(3)), &silentEntries{}
	c := &Collector{ctx: t.Context(), intent: intent.New(intent.Config{}, intent.Dependencies{
		Clock: epoch.Wall{}, Epochs: epoch.New(epochConfig(cfg), epoch.Dependencies{}), Shared: shared})}
	c.cfg.Store(cfg)
	for _, d := range cfg.Devices {
		c.intent.AddDevice(&fakeDevice{cfg: device.Config{Name: d.Name}}, false)
	}
	c.syncEntries()
	if len(shared.waits) != 1 || shared.waits[0] > cfg.Epoch.Interval/4 {
		t.Errorf("calls of the store may wait for %v, want one, for at most %v", shared.waits, cfg.Epoch.Interval/4)
	}
}

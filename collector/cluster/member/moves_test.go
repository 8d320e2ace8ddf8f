// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/internal/config"
)

// silentEntries is a store of entries that does not answer. It records how long each call may wait.
type silentEntries struct {
	intent.Cluster
	waits []time.Duration
}

func (s *silentEntries) Take(ctx context.Context, _ string) (held intent.Held, own bool, err error) {
	end, _ := ctx.Deadline()
	s.waits = append(s.waits, time.Until(end))
	<-ctx.Done()
	return held, false, ctx.Err()
}

func (s *silentEntries) Store(ctx context.Context, name string, _ intent.Held) error {
	_, _, err := s.Take(ctx, name)
	return err
}

// readyDevice is a device that is ready. Its other methods are not called.
type readyDevice struct {
	intent.Device
	name string
}

func (d readyDevice) Name() string                      { return d.name }
func (d readyDevice) Ready() (banks.Incarnation, error) { return banks.Incarnation{}, nil }

// Sharing the entries of all devices may take a quarter of an epoch in total, so that devices are
// handed over even if the store does not answer.
func TestTimeToShareEntries(t *testing.T) {
	cfg, shared := &config.Config{}, &silentEntries{}
	cfg.Epoch.Interval = time.Second
	engine := epoch.New(epoch.Config{Interval: cfg.Epoch.Interval}, epoch.Dependencies{})
	m := &Component{ctx: t.Context(), deps: Dependencies{Config: func() *config.Config { return cfg }}}
	m.Connect(Components{Intent: intent.New(intent.Config{}, intent.Dependencies{Clock: epoch.Wall{}, Epochs: engine,
		Cluster: shared})})
	for _, name := range []string{"s1", "s2", "s3"} {
		m.parts.Intent.AddDevice(readyDevice{name: name}, false, false)
	}
	m.syncEntries()
	if len(shared.waits) != 1 || shared.waits[0] > cfg.Epoch.Interval/4 {
		t.Errorf("calls of the store may wait for %v, want one, for at most %v", shared.waits, cfg.Epoch.Interval/4)
	}
}

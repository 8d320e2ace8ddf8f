// SPDX-License-Identifier: Apache-2.0

// How an epoch reaches the plugin, and how its results return.

package pluginhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
	"github.com/netsketch/netsketch/plugins/sdk/record"
)

// Bounds of one epoch: the number of plans, the total bytes of plans and events, and the bytes that
// the collector discards after it has refused the results. A plugin that still sends after that has
// ignored the cancellation.
const (
	maxPlans     = 64
	maxPlanBytes = 16 << 20
	maxDiscarded = 64 << 20
)

// messageOverhead is the number of bytes that a discarded message counts in addition to its own
// bytes.
const messageOverhead = 256

// call is an epoch that the plugin is analyzing. The session's receiver fills it in until done is
// closed; afterwards, only the caller uses it.
type call struct {
	epoch     uint64
	decoder   *sdk.TableDecoder
	results   sdk.Results
	err       error
	bytes     int // bytes of plans and events so far
	discarded int // bytes after the results were refused
	maxEvents int
	done      chan struct{}
}

// refuse records why the results cannot be used, and frees their memory.
func (c *call) refuse(why error) {
	c.err = fmt.Errorf("%w: %w", ErrInvalidResults, why)
	c.results, c.decoder = sdk.Results{}, nil
}

func (c *call) table(part *pluginv1.TablePart) {
	if c.err != nil {
		return
	}
	result, err := c.decoder.Add(part)
	switch {
	case errors.Is(err, sdk.ErrTableTooLarge):
		c.refuse(fmt.Errorf("%w; configure the plugin to report fewer rows or shorter texts", err))
	case err != nil:
		c.refuse(err)
	case result != nil:
		c.results.Tables = append(c.results.Tables, *result)
	}
}

func (c *call) state(m *pluginv1.PluginState) {
	switch {
	case c.err != nil:
	case len(m.GetData()) > sdk.MaxState:
		c.refuse(fmt.Errorf("a state of %d bytes; at most %d are kept", len(m.GetData()), sdk.MaxState))
	default:
		s := sdk.StateFrom(m)
		s.Epoch = c.epoch
		c.results.State = &s
	}
}

// withinBounds adds the size of a plan or an event, and reports whether the total is within the
// bound.
func (c *call) withinBounds(m proto.Message) bool {
	c.bytes += proto.Size(m)
	if c.err == nil && c.bytes > maxPlanBytes {
		c.refuse(fmt.Errorf("more than %d bytes of plans and events", maxPlanBytes))
	}
	return c.err == nil
}

func (c *call) plan(m *pluginv1.Plan) {
	if !c.withinBounds(m) {
		return
	}
	plan, err := sdk.PlanFrom(m)
	if err == nil && len(c.results.Plans) == maxPlans {
		err = fmt.Errorf("more than %d plans", maxPlans)
	}
	if err != nil {
		c.refuse(err)
		return
	}
	c.results.Plans = append(c.results.Plans, plan)
}

// event keeps an event. It returns false if the epoch has too many events.
func (c *call) event(e sdk.Event) bool {
	if c.err != nil || len(c.results.Events) >= c.maxEvents {
		return false
	}
	c.results.Events = append(c.results.Events, e)
	return true
}

func (c *call) finish(m *pluginv1.EpochDone) {
	c.results.Stats = sdk.StatsFrom(m.GetStats())
	switch {
	case c.err != nil:
	case m.GetError() != "":
		c.err = fmt.Errorf("%w: %s", ErrFailed, clean(m.GetError()))
	case c.decoder.Open():
		c.refuse(errors.New("the last table is incomplete"))
	}
	close(c.done)
}

// Analyze gives the plugin one sealed epoch and returns its results as the plugin sent them: their
// size is bounded, but their contents are not validated. After an error, the epoch is lost for
// this plugin, and the caller can send the next one at once. If the plugin is killed from outside,
// the next process receives the epoch again, once.
//
// Only one goroutine may call Analyze. ctx must have a deadline; a plugin that still works
// cancelGrace after the deadline is killed. A recording may read the epoch after Analyze returns,
// so the epoch must not be changed. Epoch.Watched is ignored, see SetWatched. Results.Events are
// already logged.
func (i *Instance) Analyze(ctx context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	if err := checkEpoch(epoch); err != nil {
		return nil, fmt.Errorf("the epoch cannot be sent: %w", err)
	}
	s, err := i.current(ctx)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	watched, network := i.watched, i.network
	setup := record.Setup{Config: i.config, EpochLength: i.spec.EpochLength, Network: network, State: i.state}
	i.mu.Unlock()
	i.record(epoch, watched, setup)
	results, err := s.analyze(ctx, epoch, watched, network)
	if errors.Is(err, errKilled) {
		if s, again := i.current(ctx); again == nil {
			return s.analyze(ctx, epoch, watched, network)
		}
	}
	return results, err
}

// analyze sends an epoch and waits for its results. ctx must have a deadline; a plugin that has not
// finished cancelGrace after the deadline is killed. When analyze returns, either the plugin is
// ready for the next epoch or the session is over.
func (s *session) analyze(ctx context.Context, epoch *sdk.Epoch, watched map[string]sdk.RowKey,
	network sdk.Network,
) (*sdk.Results, error) {
	c := &call{
		epoch: epoch.Number, done: make(chan struct{}),
		decoder: sdk.NewTableDecoder(s.host.opts.MaxResultBytes), maxEvents: s.host.opts.MaxEpochEvents,
	}
	s.mu.Lock()
	s.call = c
	s.mu.Unlock()
	sent := make(chan error, 1)
	if !s.spawn(func() { sent <- s.transmit(ctx, epoch, watched, network) }) {
		<-s.dead
		return nil, s.exitErr
	}
	if err := s.await(ctx, c, sent); err != nil {
		return nil, err
	}
	if errors.Is(c.err, ErrFailed) {
		if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
			return nil, ErrTimeout // the plugin failed because its time was over, although ctx has not ended yet
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	return &c.results, nil
}

// await waits until the epoch is sent and the plugin has replied. After the deadline, it cancels
// the epoch.
func (s *session) await(ctx context.Context, c *call, sent <-chan error) error {
	allowed := cancelGrace(budgetOf(ctx))
	var expired error // the reason why ctx ended
	var grace <-chan time.Time
	ended, done := ctx.Done(), c.done
	for sent != nil || done != nil {
		select {
		case err := <-sent:
			if err != nil {
				return cmp.Or(expired, s.unsendable(err))
			}
			sent = nil
			if expired != nil {
				s.cancelEpoch(c, expired)
			}
		case <-done:
			done = nil
		case <-s.ctx.Done():
			<-s.dead
			return cmp.Or(expired, s.exitErr)
		case <-ended:
			expired, ended = timeoutOr(ctx), nil
			timer := time.NewTimer(allowed)
			defer timer.Stop()
			grace = timer.C
			if sent == nil {
				s.cancelEpoch(c, expired)
			}
		case <-grace:
			reason := fmt.Errorf("%w and did not stop within %v after the deadline", expired, allowed)
			if sent != nil {
				reason = fmt.Errorf("%w and does not read its input", expired)
			}
			s.fail(reason)
			<-s.dead
			return expired
		}
	}
	return expired
}

// cancelEpoch requests that the plugin abandons an epoch.
func (s *session) cancelEpoch(c *call, cause error) {
	s.spawn(func() {
		s.send.Lock()
		defer s.send.Unlock()
		_ = s.stream.Send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Cancel{
			Cancel: &pluginv1.EpochCancel{Epoch: c.epoch, Reason: cause.Error()},
		}}) // fails only if the session is over
	})
}

// timeoutOr returns why ctx ended.
func timeoutOr(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ErrTimeout
	}
	return ctx.Err()
}

// unsendable ends the session after transmit failed, which means that the stream is broken.
func (s *session) unsendable(err error) error {
	select { // the exit status of the process is the better reason
	case <-s.proc.ended:
	case <-s.ctx.Done():
	case <-time.After(exitGrace):
		s.fail(fmt.Errorf("%w: send: %w", ErrProtocol, err))
	}
	<-s.dead
	return s.exitErr
}

// transmit sends changes of the network model and of the watched rows, and then the epoch.
func (s *session) transmit(ctx context.Context, epoch *sdk.Epoch, watched map[string]sdk.RowKey,
	network sdk.Network,
) error {
	s.send.Lock()
	defer s.send.Unlock()
	if network.Version != s.network && s.description.Capabilities.NetworkUpdates {
		if err := s.stream.Send(
			&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Network{Network: network.Proto()}}); err != nil {
			return err
		}
		s.network = network.Version
	}
	if update := watchUpdate(s.watched, watched); update != nil {
		if err := s.stream.Send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Watch{Watch: update}}); err != nil {
			return err
		}
		s.watched = watched
	}
	send := func(part *pluginv1.EpochPart) error { return s.stream.Send(sdk.RunRequestOf(part)) }
	return epoch.Send(send, budgetOf(ctx))
}

// budgetOf returns the time left until the deadline of ctx, which is at least 1 ns; 0 without a
// deadline.
func budgetOf(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(deadline), 1)
}

// watchUpdate returns the difference between two sets of rows, or nil if they are equal.
func watchUpdate(from, to map[string]sdk.RowKey) *pluginv1.WatchUpdate {
	var update pluginv1.WatchUpdate
	for _, id := range slices.Sorted(maps.Keys(to)) {
		if _, there := from[id]; !there {
			update.Add = append(update.Add, to[id].Proto())
		}
	}
	for _, id := range slices.Sorted(maps.Keys(from)) {
		if _, there := to[id]; !there {
			update.Remove = append(update.Remove, from[id].Proto())
		}
	}
	if len(update.Add)+len(update.Remove) == 0 {
		return nil
	}
	return &update
}

// checkEpoch validates an epoch before sending, because an error in the middle would break the
// stream.
func checkEpoch(epoch *sdk.Epoch) error {
	if !epoch.End.After(epoch.Start) {
		return fmt.Errorf("it ends at %v, not after its start at %v", epoch.End, epoch.Start)
	}
	for i := range epoch.Devices {
		for _, cells := range epoch.Devices[i].Objects {
			if err := cells.Check(); err != nil {
				return fmt.Errorf("device %s: %w", epoch.Devices[i].Name, err)
			}
		}
	}
	if epoch.Status < sdk.StatusComplete || epoch.Status > sdk.StatusLost {
		return fmt.Errorf("its status is %v", epoch.Status)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

// One epoch's trip to the plugin and back.

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// maxPlans bounds the plans of one epoch, maxBeside the bytes of what comes with tables: plans and events.
const (
	maxPlans  = 64
	maxBeside = 16 << 20
)

// call is an epoch that is out. The session's receiver fills it in until done is
// closed; from then on it belongs to the caller.
type call struct {
	epoch     uint64
	decoder   *sdk.TableDecoder
	results   sdk.Results
	err       error
	beside    int // bytes of plans and events
	maxEvents int
	done      chan struct{}
}

func (c *call) table(part *pluginv1.TablePart) {
	if c.err != nil {
		return
	}
	result, err := c.decoder.Add(part)
	switch {
	case err != nil:
		c.err = fmt.Errorf("%w: %w", ErrInvalidResults, err)
		c.results, c.decoder = sdk.Results{}, nil // gives the memory back
	case result != nil:
		c.results.Tables = append(c.results.Tables, *result)
	}
}

func (c *call) state(m *pluginv1.PluginState) {
	switch {
	case c.err != nil:
	case len(m.GetData()) > sdk.MaxState:
		c.err = fmt.Errorf("%w: a state of %d bytes; at most %d are kept", ErrInvalidResults, len(m.GetData()), sdk.MaxState)
	default:
		s := sdk.StateFrom(m)
		s.Epoch = c.epoch
		c.results.State = &s
	}
}

// affords counts the bytes of a plan or an event, and reports whether it can be taken.
func (c *call) affords(m proto.Message) bool {
	c.beside += proto.Size(m)
	if c.err == nil && c.beside > maxBeside {
		c.err = fmt.Errorf("%w: more than %d bytes of plans and events", ErrInvalidResults, maxBeside)
		c.results, c.decoder = sdk.Results{}, nil // gives the memory back
	}
	return c.err == nil
}

func (c *call) plan(m *pluginv1.Plan) {
	if !c.affords(m) {
		return
	}
	plan, err := sdk.PlanFrom(m)
	if err == nil && len(c.results.Plans) == maxPlans {
		err = fmt.Errorf("more than %d plans", maxPlans)
	}
	if err != nil {
		c.err = fmt.Errorf("%w: %w", ErrInvalidResults, err)
		return
	}
	c.results.Plans = append(c.results.Plans, plan)
}

// event keeps an event, or returns false when there are too many.
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
		c.err = fmt.Errorf("%w: the last table has no end", ErrInvalidResults)
	}
	close(c.done)
}

// reserve waits until the plugin has done with the epoch before. It returns false
// when the session ends first: another one is to be asked then.
func (s *session) reserve(ctx context.Context) (bool, error) {
	select {
	case <-s.dead:
		return false, nil
	default:
	}
	select {
	case s.busy <- struct{}{}:
		return true, nil
	case <-s.dead:
		return false, nil
	case <-ctx.Done():
		return false, fmt.Errorf("%w: it is still busy with the epoch before", timeoutOr(ctx))
	}
}

// analyse sends an epoch and waits for its results, after reserve. ctx has a
// deadline. It returns when ctx ends; a plugin that does not stop within
// CancelGrace then is killed.
func (s *session) analyse(ctx context.Context, epoch *sdk.Epoch, watched map[string]sdk.Watch, network sdk.Network) (*sdk.Results, error) {
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
		return nil, s.obituary()
	}
	for sending, done := sent, c.done; ; {
		select {
		case err := <-sending:
			if err != nil {
				return nil, s.unsendable(err)
			}
			sending = nil
		case <-done:
			done = nil
		case <-s.ctx.Done():
			<-s.dead
			return nil, s.obituary()
		case <-ctx.Done():
			cause := timeoutOr(ctx)
			allSent := sending == nil
			s.spawn(func() { s.abandon(c, sent, allSent, cause) })
			return nil, cause
		}
		if sending == nil && done == nil {
			break
		}
	}
	if errors.Is(c.err, ErrFailed) && ctx.Err() != nil {
		// It gave up because its time was over, and said so before this side looked.
		return nil, timeoutOr(ctx)
	}
	if c.err != nil {
		return nil, c.err
	}
	if err := s.check(&c.results); err != nil {
		return nil, err
	}
	return &c.results, nil
}

// timeoutOr returns why ctx ended.
func timeoutOr(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ErrTimeout
	}
	return ctx.Err()
}

// unsendable handles an error of transmit: the stream is broken.
func (s *session) unsendable(err error) error {
	select { // the end of the process says more than the stream
	case <-s.proc.exited:
	case <-s.ctx.Done():
	case <-time.After(exitGrace):
	}
	s.fail(fmt.Errorf("%w: send: %w", ErrProtocol, err))
	<-s.dead
	return s.obituary()
}

// abandon tells the plugin that nobody waits for the epoch any more, and kills it
// when it does not come to an end soon.
func (s *session) abandon(c *call, sent <-chan error, allSent bool, cause error) {
	grace := time.NewTimer(s.host.opts.CancelGrace)
	defer grace.Stop()
	if !allSent { // it may be stuck in reading
		select {
		case <-sent:
		case <-s.ctx.Done():
			return
		case <-grace.C:
			s.fail(fmt.Errorf("%w and does not read its input", cause))
			return
		}
	}
	s.spawn(func() {
		s.send.Lock()
		defer s.send.Unlock()
		_ = s.stream.Send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Cancel{
			Cancel: &pluginv1.EpochCancel{Epoch: c.epoch, Reason: cause.Error()},
		}}) // fails only when the session is over
	})
	select {
	case <-c.done:
	case <-s.ctx.Done():
	case <-grace.C:
		s.fail(fmt.Errorf("%w and did not stop %v after its deadline", cause, s.host.opts.CancelGrace))
	}
}

// transmit sends what changed since the epoch before, and the epoch.
func (s *session) transmit(ctx context.Context, epoch *sdk.Epoch, watched map[string]sdk.Watch, network sdk.Network) error {
	s.send.Lock()
	defer s.send.Unlock()
	if network.Version != s.network && s.description.Capabilities.NetworkUpdates {
		if err := s.stream.Send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Network{Network: network.Proto()}}); err != nil {
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
	budget := time.Duration(0)
	if deadline, ok := ctx.Deadline(); ok {
		budget = max(time.Until(deadline), 1)
	}
	return epoch.Send(sdk.RunSink{Send: s.stream.Send}, budget)
}

// watchUpdate returns what leads from one set of rows to another, or nil.
func watchUpdate(from, to map[string]sdk.Watch) *pluginv1.WatchUpdate {
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

// checkEpoch finds what would fail in the middle of sending.
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

// check holds results against what the plugin declared and the schema.
func (s *session) check(results *sdk.Results) error {
	for _, result := range results.Tables {
		declared := slices.ContainsFunc(s.description.Lists, func(l sdk.List) bool { return l.Path == result.Table.List })
		if !declared {
			return fmt.Errorf("%w: a table of %s, a list that its description does not declare", ErrInvalidResults, result.Table.List)
		}
		if s.host.opts.Validate == nil {
			continue
		}
		if err := s.host.opts.Validate(result.Table); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalidResults, err)
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/intent"
)

// plansKey is the key of a member's plans in the bucket of plans.
func plansKey(member string) string { return "plans." + token(member) }

// Share replaces the plans of this member that are not concluded. It does not block.
func (c *Component) Share(plans []intent.SharedPlan) {
	c.mu.Lock()
	before := map[uint64]*clusterv1.StoredPlan{}
	for _, p := range c.plans {
		before[p.GetNumber()] = p
	}
	next := make([]*clusterv1.StoredPlan, 0, len(plans))
	var err error
	for _, p := range plans {
		s := before[p.Number]
		if s == nil || s.GetUndo() != p.Undo {
			var converting error
			s, converting = planProto(p)
			err = errors.Join(err, converting)
		}
		next = append(next, s)
	}
	c.written = c.written && slices.Equal(c.plans, next)
	c.plans = next
	c.mu.Unlock()
	if err != nil {
		c.log.Error("cluster: plans cannot be shared", "error", err)
	}
	c.signal()
}

// signal makes sharePlans write what has changed.
func (c *Component) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// sharePlans writes plans and settings to the bucket until Stop.
func (c *Component) sharePlans() {
	for {
		select {
		case <-c.changed:
		case <-c.ctx.Done():
			return
		}
		for {
			err := c.share()
			if c.ctx.Err() != nil {
				return
			}
			c.note("plans and settings of hosts", "bucket", "plans", bus.Unanswered(err))
			if err == nil {
				break
			}
			c.plansOf.failed()
			if !c.pause() {
				return
			}
		}
	}
}

func (c *Component) pause() bool {
	select {
	case <-time.After(retryEvery):
		return true
	case <-c.ctx.Done():
		return false
	}
}

// share writes what is not in the bucket.
func (c *Component) share() error {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	bucket, err := c.plansOf.on(ctx, c.deps.Bus)
	if err != nil {
		return err
	}
	return errors.Join(c.putSettings(ctx, bucket), c.putPlans(ctx, bucket))
}

// putPlans writes the plans of this member. Only this member writes the key.
func (c *Component) putPlans(ctx context.Context, bucket jetstream.KeyValue) error {
	key := plansKey(c.deps.Member)
	for {
		c.mu.Lock()
		plans, written, before := c.plans, c.written, c.split
		c.mu.Unlock()
		if written {
			return nil
		}
		data, split, err := c.pack(ctx, bucket, key, before, &clusterv1.StoredPlans{Protocol: clusterv1.Version,
			From: c.deps.Member, Plans: plans}, func(s *clusterv1.Split) stored {
			return &clusterv1.StoredPlans{Protocol: clusterv1.Version, From: c.deps.Member, Split: s}
		})
		if errors.Is(err, errTooLarge) && len(plans) > 0 {
			c.refuse(plans[len(plans)-1], err)
			return nil
		}
		if err == nil {
			_, err = bucket.Put(ctx, key, data)
		}
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.split, c.written = split, slices.Equal(c.plans, plans)
		c.mu.Unlock()
		if before != nil {
			removeSplit(ctx, bucket, key, before)
		}
	}
}

// refuse fails a plan that is too large to be shared, at all devices that do not have it.
func (c *Component) refuse(p *clusterv1.StoredPlan, reason error) {
	plan, err := planFrom(p)
	if err != nil {
		reason = err
	}
	for _, w := range plan.Plan.Writes {
		c.deps.Outcome(intent.Outcome{Plugin: plan.Plugin, Plan: plan.Plan.ID, Number: p.GetNumber(), Device: w.Device,
			Result: intent.Refused, From: plan.Plan.FromEpoch, Reason: "the plan is not shared: " + reason.Error()})
	}
}

// takePlans takes plans and settings of other members, until Stop.
func (c *Component) takePlans() {
	for c.ctx.Err() == nil {
		if err := c.watch(); err != nil && c.ctx.Err() == nil {
			c.plansOf.failed()
			c.log.Debug("cluster: plans are not received", "error", err)
		}
		if !c.pause() {
			return
		}
	}
}

func (c *Component) watch() error {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	bucket, err := c.plansOf.on(ctx, c.deps.Bus)
	cancel()
	if err != nil {
		return err
	}
	updates, err := bucket.Watch(c.ctx, "*.*", jetstream.IgnoreDeletes()) // keys of chunks have more parts
	if err != nil {
		return err
	}
	defer func() { _ = updates.Stop() }()
	for {
		select {
		case entry, ok := <-updates.Updates():
			if !ok {
				return errors.New("the watch has ended")
			}
			if entry != nil { // nil removes the former value
				c.takeEntry(bucket, entry)
			}
		case <-c.ctx.Done():
			return nil
		}
	}
}

// takeEntry takes the plans of a member, or the settings of a plugin. Plans and settings that
// cannot be read are counted and logged, and the previous ones stay.
func (c *Component) takeEntry(bucket jetstream.KeyValue, entry jetstream.KeyValueEntry) {
	kind, name, _ := strings.Cut(entry.Key(), ".")
	of, err := base64.RawURLEncoding.DecodeString(name)
	switch {
	case err != nil:
	case kind == "hosts":
		c.takeSettings(string(of), entry.Value())
	case kind == "plans" && string(of) != c.deps.Member:
		err = c.follow(bucket, string(of), entry)
	}
	c.note("plans", "key", entry.Key(), err)
}

// follow takes the plans of a member.
func (c *Component) follow(bucket jetstream.KeyValue, member string, entry jetstream.KeyValueEntry) error {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	m := &clusterv1.StoredPlans{}
	if _, err := unpack(ctx, bucket, entry.Key(), entry.Value(), m); err != nil {
		return err
	}
	var all []intent.SharedPlan
	for _, p := range m.GetPlans() {
		plan, err := planFrom(p)
		if err != nil {
			return err
		}
		all = append(all, plan)
	}
	c.deps.Follow(c.ctx, member, all)
	return nil
}

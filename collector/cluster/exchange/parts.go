// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/netsketch/netsketch/collector/cluster/codec"
	"github.com/netsketch/netsketch/collector/epoch"
)

// HandOver sends this collector's measurements to the homes of the plugins that read them. It does
// not block: while two epochs wait to be sent, a further epoch is dropped and counted.
func (c *Component) HandOver(ep *epoch.Epoch) {
	c.inbox.begin(ep.Number)
	if len(ep.Sources) == 0 {
		return
	}
	select {
	case c.outbox <- ep:
	default:
		c.n.partsFailed.Add(1)
		c.note("parts of epochs", errors.New("the one before is still being sent"))
	}
}

// sendParts sends parts until Stop.
func (c *Component) sendParts() {
	for {
		select {
		case ep := <-c.outbox:
			homes := c.homes(ep.Number)
			for member, h := range homes {
				part := *ep
				if delete(homes, member); len(homes) > 0 { // sendPart releases the registers that it sends
					part.Sources = slices.Clone(ep.Sources)
				}
				err := c.sendPart(member, &part, h)
				if err != nil {
					c.n.partsFailed.Add(1)
				} else {
					c.n.partsSent.Add(1)
				}
				c.note("parts of epochs", err)
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// home is a collector with the plugins whose epochs it analyzes.
type home struct {
	plugins map[string]map[string]map[string]bool // registers that each plugin reads, by device
	readers map[string]map[string]int             // plugins that read a register unmerged, by device
}

// homes returns the other collectors that are home of a plugin in an epoch.
func (c *Component) homes(number uint64) map[string]*home {
	view := c.deps.View().In(number)
	homes := map[string]*home{}
	for plugin, devices := range c.deps.Wanted() {
		name := view.Plugin(plugin)
		if name == "" || name == c.cfg.Member {
			continue
		}
		h := homes[name]
		if h == nil {
			h = &home{map[string]map[string]map[string]bool{}, map[string]map[string]int{}}
			homes[name] = h
		}
		h.plugins[plugin] = devices
		for device, objects := range devices {
			if h.readers[device] == nil {
				h.readers[device] = map[string]int{}
			}
			for o := range objects {
				h.readers[device][o]++
			}
		}
	}
	return homes
}

// shares reports whether another plugin reads a register of this one.
func (h *home) shares(plugin string) bool {
	for device, objects := range h.plugins[plugin] {
		for o := range objects {
			if h.readers[device][o] > 1 {
				return true
			}
		}
	}
	return false
}

// A plugin may take 1/mergeShare of an epoch's length to merge.
const mergeShare = 8

// merge lets plugins at a home merge the registers of an epoch, and returns the merged registers,
// which are sent instead. The registers of a plugin whose merge fails, or that share registers with
// another plugin, are sent unmerged.
func (c *Component) merge(h *home, ep *epoch.Epoch) (all []codec.Merged) {
	for _, plugin := range slices.Sorted(maps.Keys(h.plugins)) {
		if h.shares(plugin) {
			continue
		}
		ctx, cancel := context.WithTimeout(c.ctx, max(ep.End.Sub(ep.Start)/mergeShare, c.cfg.AckTimeout))
		merged, err := c.deps.Merge(ctx, plugin, ep)
		cancel()
		c.note("merged registers of plugin "+plugin, err)
		if err != nil || merged == nil {
			continue
		}
		all = append(all, codec.Merged{Plugin: plugin, Epoch: merged})
		for _, device := range merged.Expected {
			for o := range h.plugins[plugin][device] {
				h.readers[device][o] = 0
			}
		}
	}
	return all
}

// windowChunks is the number of chunks after which a sender waits for a reply, so that a large part
// fills no buffer of a NATS server: 8 MiB.
const windowChunks = 16

// sendPart sends an epoch to one home and waits for the acknowledgement. It releases the readings.
func (c *Component) sendPart(member string, ep *epoch.Epoch, h *home) error {
	merged := c.merge(h, ep)
	subject := c.deps.Bus.Subject("part", member)
	chunks := 0
	out := codec.NewChunker(c.cfg.Member, c.transfers.Add(1), func(chunk []byte, last bool) error {
		c.n.partBytesSent.Add(uint64(len(chunk)))
		if chunks++; !last && chunks%windowChunks != 0 {
			return c.deps.Bus.Conn().Publish(subject, chunk)
		}
		ctx, cancel := context.WithTimeout(c.ctx, c.cfg.AckTimeout)
		defer cancel()
		reply, err := c.deps.Bus.Conn().RequestWithContext(ctx, subject, chunk)
		if err != nil {
			return fmt.Errorf("part of epoch %d to collector %s: %w", ep.Number, member, err)
		}
		want := accept
		if !last {
			want = proceed
		}
		if text := string(reply.Data); text != want {
			return fmt.Errorf("part of epoch %d: refused by collector %s: %s", ep.Number, member, text)
		}
		return nil
	})
	if err := codec.WritePart(out, ep, c.deps.View().Fence, c.cfg.MaxPart, func(device, object string) bool {
		return h.readers[device][object] > 0
	}, merged...); err != nil {
		return err
	}
	return out.Close()
}

// The replies to chunks: accept to the last one of a part that is accepted, proceed to others. Any
// other reply is the reason why the part is refused.
const (
	accept  = "accepted"
	proceed = "continue"
)

// receiveParts receives parts until Stop.
func (c *Component) receiveParts(sub *nats.Subscription) {
	defer func() { _ = sub.Unsubscribe() }() // the connection may be closed
	join := codec.NewJoiner(c.cfg.MaxPart+c.cfg.MaxPart/8, func() *codec.PartDecoder {
		return codec.NewPartDecoder(c.cfg.MaxPart)
	})
	for {
		m, err := sub.NextMsgWithContext(c.ctx)
		switch {
		case c.ctx.Err() != nil:
			return
		case errors.Is(err, nats.ErrSlowConsumer): // the part is cut short, which is handled below
			continue
		case err != nil:
			c.note("parts of epochs", err)
			if !c.pause() {
				return
			}
			continue
		}
		reply := c.receivePart(join, m.Data, m.Reply != "")
		if m.Reply != "" {
			if err := m.Respond([]byte(reply)); err != nil {
				c.note("acknowledgements of parts", err)
			}
		}
	}
}

// receivePart takes a chunk and returns the reply; asked states that the sender waits for it.
func (c *Component) receivePart(join *codec.Joiner[*codec.PartDecoder], chunk []byte, asked bool) string {
	c.n.partBytesReceived.Add(uint64(len(chunk)))
	whole, err := join.Add(chunk)
	if err != nil {
		switch {
		case errors.Is(err, codec.ErrRefused): // counted with the chunk before
		case !errors.Is(err, codec.ErrRepeated):
			c.n.partsRefused.Add(1)
			c.note("some parts of other collectors", err)
		case asked: // the home has asked for an acknowledgment of a chunk
			c.n.partsRepeated.Add(1)
		}
		return err.Error()
	}
	if whole == nil {
		return proceed
	}
	part, err := whole.Sink.Part()
	if err != nil {
		c.n.partsRefused.Add(1)
		c.note("some parts of other collectors", err)
		return err.Error()
	}
	why, dropped := c.inbox.take(whole.Member, part, c.deps.View(), c.deps.Late)
	c.n.sourcesDropped.Add(uint64(dropped))
	switch why {
	case accepted:
		c.n.partsReceived.Add(1)
		c.note("some parts of other collectors", nil)
		return accept
	case repeated:
		c.n.partsRepeated.Add(1)
	case tooLate:
		c.n.partsLate.Add(1)
	case deposed:
		c.n.partsDeposed.Add(1)
	default:
		c.n.partsRefused.Add(1)
	}
	return refusals[why]
}

// SPDX-License-Identifier: Apache-2.0

// The control software of switches: LLDP between neighbors, and the state of a link that both its
// ends decide.

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/lldp"
)

func isLLDP(pkt []byte) bool {
	return len(pkt) >= 14 && binary.BigEndian.Uint16(pkt[12:]) == lldp.EtherType
}

// neighbor carries an LLDP frame to the other end of a wire, immediately and without random loss,
// so that experiments are the same with it and without.
func (n *Network) neighbor(w *wire, pkt []byte, at time.Duration) {
	w.mu.Lock()
	down := w.down
	w.mu.Unlock()
	if !down && !w.to.host {
		n.nodes[w.to.node].sw.neighbor(w.to.port, pkt, at)
	}
}

// speak starts the switches' LLDP, which keeps to the wall clock, and makes links follow
// their ends.
func (n *Network) speak() {
	ctx, silence := context.WithCancel(context.Background())
	n.silence = silence
	for _, nd := range n.nodes {
		n.agents.Go(func() { nd.sw.speak(ctx) })
	}
	for _, l := range n.cfg.Fabric.Links {
		name := n.cfg.Fabric.LinkName(l)
		for _, end := range []struct {
			node int
			port uint32
		}{{l.A, l.PortA}, {l.B, l.PortB}} {
			disabled := false
			n.nodes[end.node].sw.watch(end.port, func(now bool) {
				n.carrierMu.Lock()
				changed := disabled != now
				disabled = now
				n.carrierMu.Unlock()
				if changed {
					if err := n.carrier(name); err != nil {
						n.log.Error("link does not follow its end", "link", name, "error", err)
					}
				}
			})
		}
	}
}

// carrier sets the state of a link at both its ends: up unless the link is down, or the
// port at the other end is disabled.
func (n *Network) carrier(name string) error {
	pair := n.wires[name]
	var errs []error
	for i, w := range pair {
		w.mu.Lock()
		down := w.down
		w.mu.Unlock()
		from := pair[1-i].to // end of the link that the wire leaves
		disabled, err := n.nodes[from.node].sw.disabled(from.port)
		if err == nil {
			up := !down && !disabled && !n.nodes[w.to.node].stopped.Load()
			err = n.nodes[w.to.node].sw.setPortUp(w.to.port, up)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("lab: link %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// SPDX-License-Identifier: Apache-2.0

package input

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/internal/pcapfile"
)

// Run plays the file to its end, or until ctx ends, and returns the count of packets.
func (c Capture) Run(ctx context.Context, roles ...Path) (packets int, err error) {
	r, err := pcapfile.Open(c.File)
	if err != nil {
		return 0, fmt.Errorf("capture file: %w", err)
	}
	defer r.Close()
	if c.Logger != nil {
		defer r.Warn(c.Logger)
	}
	var at pace
	frame := new(packet.Frame)
	warned := c.Logger == nil
	for {
		p, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return packets, nil
		case err != nil:
			return packets, fmt.Errorf("capture file: %w", err)
		}
		if !warned && r.TimeSteps() > 0 { // at once, because a file may play for days
			r.Warn(c.Logger)
			warned = true
		}
		if at.wait(ctx, p.Date) != nil {
			return packets, nil
		}
		frame.Set(p.Frame)
		if leaves(p.Frame, c.Addresses) {
			paths(roles).out([]*packet.Frame{frame})
		} else {
			paths(roles).in([]*packet.Frame{frame})
		}
		packets++
	}
}

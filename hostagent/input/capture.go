// SPDX-License-Identifier: Apache-2.0

package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/netsketch/netsketch/hostagent/packet"
)

// Run plays the file to its end, or until ctx ends, and returns the count of packets.
func (c Capture) Run(ctx context.Context, roles ...Path) (packets int, err error) {
	f, err := os.Open(c.File)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		return 0, fmt.Errorf("capture file %s: %w", c.File, err)
	}
	if r.LinkType() != layers.LinkTypeEthernet {
		return 0, fmt.Errorf("capture file %s: link type %v; expected Ethernet", c.File, r.LinkType())
	}
	var at pace
	frame := new(packet.Frame)
	for {
		data, info, err := r.ReadPacketData()
		switch {
		case errors.Is(err, io.EOF):
			return packets, nil
		case err != nil:
			return packets, fmt.Errorf("capture file %s: packet %d: %w", c.File, packets+1, err)
		}
		if at.wait(ctx, info.Timestamp) != nil {
			return packets, nil
		}
		frame.Set(data)
		if leaves(data, c.Addresses) {
			paths(roles).out([]*packet.Frame{frame})
		} else {
			paths(roles).in([]*packet.Frame{frame})
		}
		packets++
	}
}

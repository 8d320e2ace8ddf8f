// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/p4/softswitch/dataplane/bmpb"
)

// Packet is a packet that has left a switch.
type Packet struct {
	ID    uint64 // id of the packet on arrival; 0: it arrived without an id
	Port  uint32
	Frame []byte
}

// Client sends packets into a switch's ports and receives the packets that leave. Create it with
// Open.
type Client struct {
	device uint64
	rpc    bmpb.DataplaneInterfaceClient
	stream grpc.BidiStreamingClient[bmpb.PacketStreamRequest, bmpb.PacketStreamResponse]
	cancel context.CancelFunc
	out    chan Packet
	ended  chan struct{} // closed when err is final
	err    error

	sending sync.Mutex
}

// Open opens the packet stream of a device. The switch must have a pipeline, otherwise it refuses.
// The caller closes the client before its connection.
func Open(ctx context.Context, conn grpc.ClientConnInterface, device uint64) (*Client, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &Client{
		device: device, rpc: bmpb.NewDataplaneInterfaceClient(conn), cancel: cancel,
		out: make(chan Packet, 64), ended: make(chan struct{}),
	}
	var err error
	if c.stream, err = c.rpc.PacketStream(ctx, grpc.WaitForReady(true)); err != nil {
		cancel()
		return nil, fmt.Errorf("data plane of device %d: %w", device, err)
	}
	go c.receive(ctx)
	return c, nil
}

func (c *Client) receive(ctx context.Context) {
	defer close(c.ended)
	defer close(c.out)
	for {
		m, err := c.stream.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.err = fmt.Errorf("data plane of device %d: %w", c.device, err)
			}
			return
		}
		select {
		case c.out <- Packet{m.GetId(), m.GetPort(), m.GetPacket()}:
		case <-ctx.Done():
			c.err = ctx.Err()
			return
		}
	}
}

// Inject sends a frame to a port. A nonzero id is returned with the resulting packets. A client
// that injects without reading is blocked eventually.
func (c *Client) Inject(port uint32, frame []byte, id uint64) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	err := c.stream.Send(&bmpb.PacketStreamRequest{Id: id, DeviceId: c.device, Port: port, Packet: frame})
	if errors.Is(err, io.EOF) { // the switch ended the stream with a status
		<-c.ended
		err = c.err
	}
	if err != nil {
		return fmt.Errorf("inject into port %d: %w", port, err)
	}
	return nil
}

// Packets is the channel of packets that leave, in order. It is closed at the end of the stream;
// Err then returns the reason.
func (c *Client) Packets() <-chan Packet { return c.out }

// Err returns the error that ended the stream, nil for a regular end. It waits for the end.
func (c *Client) Err() error {
	<-c.ended
	return c.err
}

// CloseSend ends the injection. The switch sends the remaining packets and ends the stream.
func (c *Client) CloseSend() error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.stream.CloseSend()
}

// SetPortUp takes a port up or down.
func (c *Client) SetPortUp(ctx context.Context, port uint32, up bool) error {
	to := bmpb.PortOperStatus_OPER_STATUS_DOWN
	if up {
		to = bmpb.PortOperStatus_OPER_STATUS_UP
	}
	_, err := c.rpc.SetPortOperStatus(ctx, &bmpb.SetPortOperStatusRequest{DeviceId: c.device, Port: port,
		OperStatus: to})
	if err != nil {
		return fmt.Errorf("port %d of device %d: %w", port, c.device, err)
	}
	return nil
}

// Close ends the stream at once. Packets that have not been read are lost.
func (c *Client) Close() {
	c.cancel()
	<-c.ended
}

// SPDX-License-Identifier: Apache-2.0

package input

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/internal/rawlink"
)

const (
	// socketBytes is the receive buffer of a socket.
	socketBytes = 8 << 20
	// pollMillis bounds the delay until a change of the context is seen.
	pollMillis = 100
	// macBytes is the offset of a VLAN tag in a frame.
	macBytes = 12
)

// endpoint is an AF_PACKET socket on an interface that receives, and one that sends.
type endpoint struct {
	name   string
	fd, tx int
}

// openEndpoint opens a socket that sees the frames that arrive on an interface, and none that are
// sent.
func openEndpoint(name string) (*endpoint, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %q: %w", name, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("interface %q: packet sockets need the capability CAP_NET_RAW: %w", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("interface %q: %w", name, err)
	}
	e := &endpoint{name: name, fd: fd, tx: -1}
	if err := errors.Join(rawlink.CheckEthernet(name), e.setUp(dev.Index)); err != nil {
		e.close()
		return nil, fmt.Errorf("interface %q: %w", name, err)
	}
	return e, nil
}

func (e *endpoint) setUp(index int) (err error) {
	if e.tx, err = rawlink.Sender(index); err != nil {
		return err
	}
	if err := rawlink.Receive(e.fd); err != nil {
		return err
	}
	// Otherwise the bridge reads the frames that it sends, and sends them back.
	if err := rawlink.OnlyArriving(e.fd); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(e.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	if unix.SetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBytes) != nil { // needs CAP_NET_ADMIN
		_ = unix.SetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, socketBytes) // the kernel may allow less
	}
	if err := unix.SetsockoptPacketMreq(e.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
		&unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}); err != nil {
		return fmt.Errorf("promiscuous mode: %w", err)
	}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	return unix.Bind(e.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
}

func (e *endpoint) close() {
	_ = unix.Close(e.fd)
	if e.tx >= 0 {
		_ = unix.Close(e.tx)
	}
}

// drain drops the frames that have arrived.
func (e *endpoint) drain() {
	for buffer := []byte{0}; ; {
		if _, err := unix.Read(e.fd, buffer); err != nil {
			return
		}
	}
}

// fanout is sockets on one interface, among which the kernel distributes frames by flow.
type fanout []*endpoint

func (f fanout) close() {
	for _, e := range f {
		e.close()
	}
}

func openFanout(name string, sockets int) (f fanout, err error) {
	group := unix.PACKET_FANOUT_FLAG_UNIQUEID << 16
	for range sockets {
		e, err := openEndpoint(name)
		if err != nil {
			f.close()
			return nil, err
		}
		f = append(f, e)
		if sockets == 1 {
			break
		}
		err = unix.SetsockoptInt(e.fd, unix.SOL_PACKET, unix.PACKET_FANOUT, group|unix.PACKET_FANOUT_HASH<<16)
		if err == nil && len(f) == 1 {
			group, err = unix.GetsockoptInt(e.fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
			group &= 0xffff
		}
		if err != nil {
			f.close()
			return nil, fmt.Errorf("interface %q: %d sockets: %w", name, sockets, err)
		}
		if len(f) > 1 {
			e.drain() // drops frames that another socket has received, too
		}
	}
	return f, nil
}

// lost returns the count of frames that the kernel dropped since the last call.
func (e *endpoint) lost() uint64 {
	s, err := unix.GetsockoptTpacketStats(e.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(s.Drops)
}

// receiver reads frames of an endpoint, as they are on the wire.
type receiver struct {
	*endpoint
	buffer, control    []byte
	splitter           rawlink.Splitter
	frames             []*packet.Frame // memory of frames, used again
	n                  int             // number of frames that were read
	truncated, unsplit uint64
}

func newReceiver(e *endpoint) *receiver {
	return &receiver{endpoint: e, buffer: make([]byte, 4+rawlink.HeaderBytes+rawlink.MaxFrame), control: make([]byte, 256)}
}

// receive returns the frames that have arrived, none if ctx has ended. With an error, it returns
// the frames that arrived before the error.
func (r *receiver) receive(ctx context.Context) ([]*packet.Frame, error) {
	for ctx.Err() == nil {
		fds := [1]unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds[:], pollMillis); err != nil && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("interface %q: poll: %w", r.name, err)
		}
		for r.n = 0; r.n < batch; {
			err := r.next(r.keep)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				return r.frames[:r.n], fmt.Errorf("interface %q: %w", r.name, err)
			}
		}
		if r.n > 0 {
			return r.frames[:r.n], nil
		}
	}
	return nil, nil
}

func (r *receiver) keep(frame []byte) {
	if r.n == len(r.frames) {
		r.frames = append(r.frames, new(packet.Frame))
	}
	r.frames[r.n].Set(frame)
	r.n++
}

// next reads one frame and calls f with it. If the kernel merged the frame, next calls f with each
// of the merged frames, with their VLAN tag.
func (r *receiver) next(f func(frame []byte)) error {
	n, oobn, flags, _, err := unix.Recvmsg(r.fd, r.buffer[4:], r.control, unix.MSG_TRUNC)
	if errors.Is(err, unix.EINVAL) { // the kernel cannot state how it merged packets
		r.unsplit++
		return nil
	}
	if err != nil {
		return err
	}
	if n -= rawlink.HeaderBytes; flags&unix.MSG_TRUNC != 0 || n > rawlink.MaxFrame || n < 0 {
		r.truncated++
		return nil
	}
	var header [rawlink.HeaderBytes]byte
	copy(header[:], r.buffer[4:])
	frame := r.buffer[4+rawlink.HeaderBytes:][:n]
	tpid, tci, tagged := vlanTag(r.control[:oobn])
	if tagged = tagged && n >= macBytes; tagged { // the kernel has removed the tag
		frame = r.buffer[rawlink.HeaderBytes:][:4+n]
		copy(frame, frame[4:4+macBytes])
		binary.BigEndian.PutUint16(frame[macBytes:], tpid)
		binary.BigEndian.PutUint16(frame[macBytes+2:], tci)
	}
	if r.splitter.Split(header[:], frame, tagged, f) != nil {
		r.unsplit++
	}
	return nil
}

// vlanTag returns the VLAN tag in the control messages of a frame.
func vlanTag(control []byte) (tpid, tci uint16, ok bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, 0, false
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA ||
			len(m.Data) < int(unsafe.Sizeof(unix.TpacketAuxdata{})) {
			continue
		}
		aux := (*unix.TpacketAuxdata)(unsafe.Pointer(&m.Data[0]))
		if aux.Status&unix.TP_STATUS_VLAN_VALID == 0 {
			continue
		}
		tpid = packet.EtherTypeVLAN
		if aux.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			tpid = aux.Vlan_tpid
		}
		return tpid, aux.Vlan_tci, true
	}
	return 0, 0, false
}

// Run forwards until ctx ends. While an interface is down or gone, it waits for it.
func (b Bridge) Run(ctx context.Context, roles ...Path) (Stats, error) {
	c := newCounts(b.Logger)
	defer c.log(true)
	lanes := make([]func([]*packet.Frame), max(b.Sockets, 1))
	for i := range lanes {
		lanes[i] = paths(roles).lane()
	}
	opened := false
	for {
		inside, outside, err := b.open()
		if err == nil {
			opened = true
			err = b.forward(ctx, c, inside, outside, roles, lanes)
		}
		switch {
		case err == nil, ctx.Err() != nil:
			return c.stats, nil
		case !opened, b.up() && !errors.Is(err, unix.ENETDOWN):
			return c.stats, err
		}
		c.stats.Outages++
		c.logger.Warn("an interface is down: nothing is forwarded until it is up", "error", err)
		if !b.awaitUp(ctx) {
			return c.stats, nil
		}
		c.logger.Info("both interfaces are up: packets are forwarded again")
	}
}

// up reports whether both interfaces are there and up.
func (b Bridge) up() bool {
	for _, name := range []string{b.Inside, b.Outside} {
		if i, err := net.InterfaceByName(name); err != nil || i.Flags&net.FlagUp == 0 {
			return false
		}
	}
	return true
}

// awaitUp waits until both interfaces are up, and returns false if ctx ends before.
func (b Bridge) awaitUp(ctx context.Context) bool {
	look := time.NewTicker(pollMillis * time.Millisecond)
	defer look.Stop()
	for !b.up() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (b Bridge) open() (inside *endpoint, outside fanout, err error) {
	if inside, err = openEndpoint(b.Inside); err != nil {
		return nil, nil, err
	}
	if outside, err = openFanout(b.Outside, max(b.Sockets, 1)); err != nil {
		inside.close()
		return nil, nil, err
	}
	return inside, outside, nil
}

// forward forwards until ctx ends or an interface fails, and closes the sockets.
func (b Bridge) forward(ctx context.Context, c *counts, inside *endpoint, outside fanout, roles []Path,
	lanes []func([]*packet.Frame)) (err error) {
	defer inside.close()
	defer outside.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pass := func(from, to *endpoint, through func([]*packet.Frame), count *uint64) error {
		defer cancel()
		r := newReceiver(from)
		for {
			frames, err := r.receive(ctx)
			for some := range slices.Chunk(frames, batch) {
				through(some)
			}
			sent, unsent := uint64(0), map[error]uint64(nil)
			for _, f := range frames {
				if f.Dropped() { // a role has taken the frame
					continue
				}
				if err := send(to.tx, f.Bytes()); err == nil {
					sent++
				} else if unsent == nil {
					unsent = map[error]uint64{err: 1}
				} else {
					unsent[err]++
				}
			}
			c.add(func(s *Stats) {
				*count += sent
				s.Truncated, r.truncated = s.Truncated+r.truncated, 0
				s.Unsplit, r.unsplit = s.Unsplit+r.unsplit, 0
				for err, n := range unsent {
					s.Unsent += n
					c.reasons[to.name+": "+reason(err)] += n
				}
			})
			if err != nil || len(frames) == 0 {
				c.add(func(s *Stats) { s.Lost += from.lost() })
				return err
			}
		}
	}
	for _, x := range roles {
		if t, ok := x.(Transmitter); ok {
			t.OnTransmit(func(frame []byte) { _ = send(outside[0].tx, frame) }) // a lost probe is sent again
			defer t.OnTransmit(nil)
		}
	}
	errs := make(chan error)
	go func() { errs <- pass(inside, outside[0], paths(roles).out, &c.stats.Out) }()
	for i, e := range outside {
		go func() { errs <- pass(e, inside, lanes[i], &c.stats.In) }()
	}
	for range 1 + len(outside) {
		err = errors.Join(err, <-errs)
	}
	return err
}

// reason says why the kernel refused a frame.
func reason(err error) string {
	switch {
	case errors.Is(err, unix.EMSGSIZE):
		return "longer than the MTU"
	case errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.ENXIO):
		return "the interface is down"
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS):
		return "the queue of the interface is full"
	}
	return err.Error()
}

// send sends a frame, and waits for room in the queue of the interface.
func send(fd int, frame []byte) error {
	for {
		_, err := unix.Write(fd, frame)
		if !errors.Is(err, unix.EAGAIN) {
			return err
		}
		fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(fds[:], pollMillis); n == 0 && err == nil {
			return unix.EAGAIN
		}
	}
}

// Check returns what would make Run fail.
func (b Bridge) Check() error {
	var errs []error
	for _, name := range []string{b.Inside, b.Outside} {
		e, err := openEndpoint(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		e.close()
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	in, inErr := net.InterfaceByName(b.Inside)
	out, outErr := net.InterfaceByName(b.Outside)
	if err := errors.Join(inErr, outErr); err != nil {
		return err
	}
	if out.MTU < in.MTU+packet.Headroom {
		return fmt.Errorf("interface %q has an MTU of %d, and %q one of %d: headers of up to %d bytes may not fit; "+
			"lower the MTU inside, or raise the one outside", b.Outside, out.MTU, b.Inside, in.MTU, packet.Headroom)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package afport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/internal/rawlink"
)

// socket is an AF_PACKET socket with a TPACKET_V3 ring of blocks, which the kernel fills with
// frames and hands over one after another. One goroutine takes frames; any may send.
type socket struct {
	fd, tx int // receiving descriptor; sending descriptor, or -1
	ring   []byte
	block  int    // block that is being read
	left   uint32 // frames of the block that were not taken yet
	at     int    // offset of the next frame in ring
	taken  bool   // whether the kernel has handed over the block
	tagged []byte // a frame with its VLAN tag put back
	drops  atomic.Uint64
}

// Places in struct tpacket_block_desc and struct tpacket3_hdr.
const (
	blockStatus, blockFrames, blockFirst              = 8, 12, 16
	frameNext, frameSnap, frameLen, frameStatus       = 0, 12, 16, 20
	frameMAC, frameTCI, frameTPID                     = 24, 32, 36
	userOwns                                          = unix.TP_STATUS_USER
	tagThere, tagProtocolThere, defaultTPID, macBytes = unix.TP_STATUS_VLAN_VALID, unix.TP_STATUS_VLAN_TPID_VALID,
		0x8100, 12
)

var errAgain = errors.New("no frame is there")

// openRing opens a socket on an interface. It receives the frames that arrive from then on, and if
// watch is set also the frames that this machine sends.
func openRing(name string, ringBytes int, watch bool) (*socket, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("AF_PACKET socket: %w", err)
	}
	// no protocol: the socket receives nothing before it is bound
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("AF_PACKET socket: %w", err)
	}
	s := &socket{fd: fd, tx: -1}
	if err := s.setUp(dev, ringBytes, watch); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *socket) setUp(dev *net.Interface, ringBytes int, watch bool) (err error) {
	if err := rawlink.CheckEthernet(dev.Name); err != nil {
		return err
	}
	if err := rawlink.Receive(s.fd); err != nil {
		return err
	}
	if !watch {
		if s.tx, err = rawlink.Sender(dev.Index); err != nil {
			return err
		}
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V3); err != nil {
		return fmt.Errorf("AF_PACKET socket: TPACKET_V3: %w", err)
	}
	req := unix.TpacketReq3{
		Block_size: blockBytes, Block_nr: uint32(ringBytes / blockBytes), Frame_size: frameBytes,
		Frame_nr:       uint32(ringBytes / blockBytes * (blockBytes / frameBytes)),
		Retire_blk_tov: uint32(handOver.Milliseconds()),
	}
	if err := unix.SetsockoptTpacketReq3(s.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return fmt.Errorf("AF_PACKET socket: ring of %d bytes: %w", ringBytes, err)
	}
	ring, err := unix.Mmap(s.fd, 0, int(req.Block_size*req.Block_nr), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("AF_PACKET socket: ring: %w", err)
	}
	s.ring = ring
	if !watch || dev.Flags&net.FlagLoopback != 0 { // frames that a loopback interface sends arrive at the same interface
		if err := rawlink.OnlyArriving(s.fd); err != nil {
			return err
		}
	}
	if !watch {
		if err := unix.SetsockoptPacketMreq(s.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
			&unix.PacketMreq{Ifindex: int32(dev.Index), Type: unix.PACKET_MR_PROMISC}); err != nil {
			return fmt.Errorf("promiscuous mode: %w", err)
		}
	}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err := unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}); err != nil {
		return fmt.Errorf("AF_PACKET socket: %w", err)
	}
	return nil
}

func (s *socket) close() {
	if s.ring != nil {
		_ = unix.Munmap(s.ring) // the memory was mapped
	}
	_ = unix.Close(s.fd)
	if s.tx >= 0 {
		_ = unix.Close(s.tx)
	}
}

// lost returns how many frames the kernel lost because the ring was full.
func (s *socket) lost() uint64 {
	if st, err := unix.GetsockoptTpacketStatsV3(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		s.drops.Add(uint64(st.Drops)) // drops since the last call
	}
	return s.drops.Load()
}

// wait waits for a frame, for at most the given time; errAgain if none arrives.
func (s *socket) wait(most time.Duration) error {
	fds := [1]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds[:], int(most.Milliseconds()))
	switch {
	case n == 0, errors.Is(err, unix.EINTR):
		return errAgain
	case err != nil:
		return fmt.Errorf("poll: %w", err)
	case fds[0].Revents&unix.POLLERR != 0:
		code, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		return fmt.Errorf("poll: %w", unix.Errno(code))
	}
	return nil
}

func (s *socket) word(at int) *uint32 { return (*uint32)(unsafe.Pointer(&s.ring[at])) }

// next returns the next frame in the ring and its header. The kernel removes VLAN tags: tagged is
// true if next put one back. whole is false if the kernel truncated the frame. The slices are valid
// until the next call. The error is errAgain if the ring is empty.
func (s *socket) next() (header, frame []byte, tagged, whole bool, err error) {
	base := s.block * blockBytes
	for s.left == 0 {
		if s.taken {
			atomic.StoreUint32(s.word(base+blockStatus), unix.TP_STATUS_KERNEL)
			s.taken = false
			s.block = (s.block + 1) % (len(s.ring) / blockBytes)
			base = s.block * blockBytes
		}
		if atomic.LoadUint32(s.word(base+blockStatus))&userOwns == 0 {
			return nil, nil, false, false, errAgain
		}
		s.taken, s.left, s.at = true, *s.word(base + blockFrames), base+int(*s.word(base + blockFirst))
	}
	h := s.ring[s.at : base+blockBytes]
	order := binary.NativeEndian
	snap, length, status := int(order.Uint32(h[frameSnap:])), int(order.Uint32(h[frameLen:])),
		order.Uint32(h[frameStatus:])
	mac := int(order.Uint16(h[frameMAC:]))
	header = h[mac-rawlink.HeaderBytes : mac]
	frame, whole = h[mac:mac+snap:mac+snap], snap == length
	if tagged = status&tagThere != 0 && snap >= macBytes; tagged {
		tpid := uint16(defaultTPID)
		if status&tagProtocolThere != 0 {
			tpid = order.Uint16(h[frameTPID:])
		}
		s.tagged = append(s.tagged[:0], frame[:macBytes]...)
		s.tagged = binary.BigEndian.AppendUint16(s.tagged, tpid)
		s.tagged = binary.BigEndian.AppendUint16(s.tagged, uint16(order.Uint32(h[frameTCI:])))
		frame = append(s.tagged, frame[macBytes:]...)
		s.tagged = frame
	}
	s.left--
	s.at += int(order.Uint32(h[frameNext:]))
	return header, frame, tagged, whole, nil
}

// batch is frames that are to be sent by one call of the kernel.
type batch struct {
	bytes    []byte
	ends     []int
	messages [batchFrames]message
	vectors  [batchFrames]unix.Iovec
}

// message is struct mmsghdr.
type message struct {
	header unix.Msghdr
	sent   uint32
	_      [4]byte
}

const batchFrames = 64

func (b *batch) add(frame []byte) (full bool) {
	b.bytes = append(b.bytes, frame...)
	b.ends = append(b.ends, len(b.bytes))
	return len(b.ends) == batchFrames
}

// send sends the frames. It returns how many the kernel took, how many it refused, and the reason.
// After a refused frame it continues with the next one.
func (b *batch) send(fd int) (sent int, refused map[error]uint64) {
	from := 0
	for i, to := range b.ends {
		b.vectors[i].Base = nil
		if to > from {
			b.vectors[i].Base = &b.bytes[from]
		}
		b.vectors[i].SetLen(to - from)
		b.messages[i].header.Iov = &b.vectors[i]
		b.messages[i].header.SetIovlen(1)
		from = to
	}
	for at := 0; at < len(b.ends); {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.messages[at])),
			uintptr(len(b.ends)-at), 0, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno != 0: // the kernel refused the frame
			if refused == nil {
				refused = map[error]uint64{}
			}
			refused[errno]++
			at++
		default:
			at += int(n)
			sent += int(n)
		}
	}
	b.drop()
	return sent, refused
}

func (b *batch) drop() { b.bytes, b.ends = b.bytes[:0], b.ends[:0] }

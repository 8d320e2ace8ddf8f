// SPDX-License-Identifier: Apache-2.0

package afport

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/internal/rawlink"
	"github.com/netsketch/netsketch/p4/softswitch"
)

const (
	frameBytes = 1 << 16
	handOver   = time.Millisecond       // the kernel hands over partial blocks after this time
	look       = 100 * time.Millisecond // interval of checks for Close and of the interface's state
)

// Port is a port of a switch on a network interface. Create it with Open.
type Port struct {
	sw     *softswitch.Switch
	number uint32
	cfg    Config
	log    *slog.Logger

	control int // a socket for the interface's flags
	stop    chan struct{}
	done    chan struct{}

	mu   sync.RWMutex // held to write while the socket is changed, to read while it is used to send
	sock *socket      // nil: the interface is gone

	waiting sync.Mutex // held to use late; taken after mu
	late    batch      // frames that are sent together

	lostBefore uint64 // frames that earlier sockets lost; guarded by mu

	unopened string // why the socket could not be opened again, as logged; used by the goroutine that receives

	splitter rawlink.Splitter // used by the goroutine that receives

	refusing sync.Mutex       // held to use the next two; taken after mu
	reasons  map[error]uint64 // number of unsent frames by reason
	logged   time.Time        // time when reasons were logged

	received, truncated, unsplit, sent, unsent atomic.Uint64
}

// Open adds a port on an interface to the switch. The caller closes the port. Open fails if the
// interface does not exist, or if the process may not open packet sockets. While the interface is
// down, the port is down.
func Open(sw *softswitch.Switch, number uint32, cfg Config) (*Port, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Port{sw: sw, number: number, cfg: cfg, reasons: map[error]uint64{}, stop: make(chan struct{}),
		done: make(chan struct{})}
	p.log = cfg.Logger.With("port", number, "interface", cfg.Interface)
	if p.control, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("interface %s: socket: %w", cfg.Interface, err)
	}
	up, err := p.linkUp()
	if err != nil {
		unix.Close(p.control)
		return nil, fmt.Errorf("interface %s: %w", cfg.Interface, err)
	}
	if err := p.openSocket(); err != nil {
		unix.Close(p.control)
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: AF_PACKET needs root or CAP_NET_RAW", err)
		}
		return nil, fmt.Errorf("interface %s: %w", cfg.Interface, err)
	}
	if err := sw.AddPort(number, softswitch.Port{Name: cfg.Name, Tx: p.send, Flush: p.flush, Lost: p.missing,
		Down: !up}); err != nil {
		p.closeSocket()
		unix.Close(p.control)
		return nil, err
	}
	if !up {
		p.log.Warn(logDown)
	}
	go p.receive()
	return p, nil
}

// Stats returns the counts.
func (p *Port) Stats() Stats {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return Stats{
		Received: p.received.Load(), Truncated: p.truncated.Load(), Unsplit: p.unsplit.Load(), Lost: p.lostBefore + p.lost(),
		Sent: p.sent.Load(), Unsent: p.unsent.Load(),
	}
}

// missing returns the discards of the port.
func (p *Port) missing() (in, out uint64) {
	s := p.Stats()
	return s.Truncated + s.Unsplit + s.Lost, s.Unsent
}

// lost reads the socket's count of frames that the kernel lost. The caller holds mu.
func (p *Port) lost() uint64 {
	if p.sock == nil {
		return 0
	}
	return p.sock.lost()
}

// Close removes the port from the switch, waits for a packet that is in it, and closes
// the socket. It is to be called once.
func (p *Port) Close() error {
	close(p.stop)
	<-p.done
	err := p.sw.RemovePort(p.number)
	p.flush()
	p.mu.Lock()
	p.closeSocket()
	p.mu.Unlock()
	unix.Close(p.control)
	if errors.Is(err, softswitch.ErrClosed) {
		return nil
	}
	return err
}

// openSocket opens the socket. The caller holds mu, or the only reference.
func (p *Port) openSocket() error {
	sock, err := openRing(p.cfg.Interface, p.cfg.RingBytes, p.cfg.Watch)
	if err != nil {
		return err
	}
	p.sock = sock
	return nil
}

// closeSocket closes the socket, if there is one. The caller holds mu, or the only reference.
func (p *Port) closeSocket() {
	if p.sock != nil {
		p.lostBefore += p.lost()
		p.sock.close()
		p.sock = nil
	}
}

// linkUp reports whether the interface is up and has a carrier.
func (p *Port) linkUp() (bool, error) {
	r, err := unix.NewIfreq(p.cfg.Interface)
	if err != nil {
		return false, err
	}
	if err := unix.IoctlIfreq(p.control, unix.SIOCGIFFLAGS, r); err != nil {
		return false, err
	}
	const up = unix.IFF_UP | unix.IFF_RUNNING
	return r.Uint16()&up == up, nil
}

// receive injects arriving frames until the port is closed.
func (p *Port) receive() {
	defer close(p.done)
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		var err error
		if p.sock != nil { // only this goroutine changes the field while it runs
			err = p.drain(tick.C)
		}
		select {
		case <-p.stop:
			return
		default:
		}
		p.follow(err)
		if err != nil || p.sock == nil {
			select {
			case <-p.stop:
				return
			case <-tick.C:
			}
		}
	}
}

// drain injects frames until the next check of the interface is due. It returns the socket's error.
func (p *Port) drain(tick <-chan time.Time) error {
	for {
		err := p.sock.wait(look)
		if errors.Is(err, errAgain) {
			return nil
		}
		if err != nil {
			return err
		}
		p.sw.Burst(p.inject)
		select {
		case <-tick:
			return nil
		case <-p.stop:
			return nil
		default:
		}
	}
}

// inject injects the frames that are in the ring, at most as many as the whole ring can hold.
func (p *Port) inject() {
	for range p.cfg.RingBytes / blockBytes * (blockBytes / frameBytes) {
		header, frame, tagged, whole, err := p.sock.next()
		switch {
		case err != nil:
			return
		case !whole:
			p.truncated.Add(1)
		case p.splitter.Split(header, frame, tagged, p.receiveFrame) != nil:
			p.unsplit.Add(1)
		}
	}
}

func (p *Port) receiveFrame(frame []byte) {
	p.received.Add(1)
	p.sw.Inject(p.number, frame, p.sw.Now())
}

const logDown = "the interface is down or has no carrier; no packets pass until it is up"

// follow takes the port down and up with its interface. A socket that failed, as it
// does when its interface goes down, is replaced as soon as the interface is up.
func (p *Port) follow(failed error) {
	up, gone := p.linkUp()
	if failed != nil || gone != nil {
		p.mu.Lock()
		p.closeSocket()
		p.mu.Unlock()
	}
	if up && p.sock == nil {
		p.mu.Lock()
		err := p.openSocket()
		p.mu.Unlock()
		if err != nil && err.Error() != p.unopened {
			p.unopened = err.Error()
			p.log.Warn("port cannot be opened again", "error", err)
		}
	}
	up = up && p.sock != nil
	if st, e := p.sw.PortStatus(p.number); e == nil && st.Up != up {
		switch {
		case up:
			p.unopened = ""
			p.log.Info("the port is up again")
		case gone != nil:
			p.log.Warn("the interface is gone; no packets pass until there is one of this name", "error", gone)
		default:
			p.log.Warn(logDown)
		}
		_ = p.sw.SetPortUp(p.number, up) // cannot fail: this goroutine ends before the port is removed
	}
}

// send sends a frame that leaves the switch: at once, or in a burst with the next frames.
func (p *Port) send(frame []byte, _ time.Duration) {
	if p.cfg.Watch {
		p.unsent.Add(1)
		return
	}
	p.waiting.Lock()
	full := p.late.add(frame)
	p.waiting.Unlock()
	if full || !p.sw.Bursting() {
		p.flush()
	}
}

// flush sends the waiting frames.
func (p *Port) flush() {
	p.mu.RLock()
	defer p.mu.RUnlock()
	p.waiting.Lock()
	defer p.waiting.Unlock()
	n, sent := len(p.late.ends), 0
	switch {
	case n == 0:
		return
	case p.sock == nil:
		p.late.drop()
	default:
		var refused map[error]uint64
		sent, refused = p.late.send(p.sock.tx)
		p.refused(refused)
	}
	p.sent.Add(uint64(sent))
	p.unsent.Add(uint64(n - sent))
}

// logEvery is the time between two lines of the log about frames that the kernel refuses.
const logEvery = 10 * time.Second

// refused counts and logs frames that the kernel refused to send.
func (p *Port) refused(frames map[error]uint64) {
	if len(frames) == 0 {
		return
	}
	p.refusing.Lock()
	defer p.refusing.Unlock()
	for err, n := range frames {
		p.reasons[err] += n
	}
	if time.Since(p.logged) < logEvery {
		return
	}
	p.logged = time.Now()
	var reasons []any
	for err, n := range p.reasons {
		if errors.Is(err, unix.EMSGSIZE) {
			err = errLong
		}
		reasons = append(reasons, slog.Uint64(err.Error(), n))
	}
	p.log.Warn("frames cannot be sent", slog.Group("reasons", reasons...))
}

var errLong = errors.New("longer than the MTU")

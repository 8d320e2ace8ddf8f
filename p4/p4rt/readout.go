// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// The read-out protocol of the data plane programs (docs/p4.md).
const (
	ReadoutCells   = 256 // cells in a packet
	readoutBytes   = ReadoutCells * 4
	readoutWindow  = 32 // requests in flight: BMv2's egress queue holds 64 packets and drops without a report
	opReadout      = 1
	reasonReadout  = 1   // packet-in: cells
	reasonRefused  = 255 // packet-in: the program lacks the requested cells
	noSeq          = -1
	readoutPoll    = 8 // checks for lost replies within ReadoutTimeout
	maxLostInError = 4
)

// Cells are the contents of one bank of a register.
type Cells struct {
	Register *p4values.Register
	Bank     int
	Data     []byte // 4 bytes per cell, little-endian; narrower registers are zero-extended

	count   uint64 // the bank's packet counter before the read
	counted bool   // count is valid

	part   *readPart
	unused *sync.Pool // readParts of the register to which Release returns the memory
}

// Release returns the memory of the cells for another read of the register. Neither the cells nor
// Data may be used afterwards. If Release is not called, the garbage collector frees the memory.
func (c *Cells) Release() {
	if c.unused != nil {
		c.unused.Put(c.part)
	}
}

// Len returns the number of cells.
func (c *Cells) Len() int { return len(c.Data) / 4 }

// At returns cell i.
func (c *Cells) At(i int) uint32 { return binary.LittleEndian.Uint32(c.Data[4*i:]) }

// CellRange is cells First to First+Count-1 of a bank.
type CellRange struct{ First, Count int }

// ReadoutError reports that a bank was not read completely. Cells are cleared as they are read:
// lost cells are gone, unread cells are still on the switch.
type ReadoutError struct {
	Target   string
	Register string
	Object   uint8
	Bank     int
	Lost     []CellRange // requested, without a reply
	Unread   []CellRange // ranges that were not requested
	Cause    error       // why reading ended early; nil if replies were lost
}

// Error names switch, register, bank and ranges.
func (e *ReadoutError) Error() string {
	s := fmt.Sprintf("p4rt %s: read-out of %s (object %d) bank %d: ", e.Target, e.Register, e.Object, e.Bank)
	if len(e.Lost) > 0 {
		s += "lost cells"
		for i, r := range e.Lost {
			if i == maxLostInError {
				s += fmt.Sprintf(" and %d more ranges", len(e.Lost)-i)
				break
			}
			s += fmt.Sprintf(" %d-%d", r.First, r.First+r.Count-1)
		}
	}
	if n := cells(e.Unread); n > 0 {
		if len(e.Lost) > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%d cells not read", n)
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *ReadoutError) Unwrap() error { return e.Cause }

// Is makes errors.Is(err, ErrReadoutLost) true if cells were lost.
func (e *ReadoutError) Is(target error) bool { return target == ErrReadoutLost && len(e.Lost) > 0 }

// ErrReadoutLost: the switch read and cleared cells, but its reply did not arrive.
var ErrReadoutLost = errors.New("read-out lost")

func cells(rs []CellRange) (n int) {
	for _, r := range rs {
		n += r.Count
	}
	return n
}

// ReadBanks reads the same bank of several registers and clears it: by packets if the program has
// the read-out control, otherwise by RegisterEntry (see [Client.Capabilities]). It requests the
// next register while replies for the previous one are arriving. A bank that is not read
// completely is nil in the result, and the error names it: lost cells are never taken for zeros.
func (c *Client) ReadBanks(ctx context.Context, bank int, registers ...string) ([]*Cells, error) {
	s, err := c.use(Ready)
	if errors.Is(err, ErrNotReady) {
		if r, rerr := c.use(ReadOnly); rerr == nil && r.program() != nil {
			s, err = r, nil
		}
	}
	if err != nil {
		return nil, err
	}
	p := s.program()
	job := readJob{s: s, headers: p.readout, done: make(chan struct{}, 1)}
	for _, name := range registers {
		r, err := p.catalog.Registers.Name(name)
		if err != nil {
			return nil, fmt.Errorf("p4rt %s: %w", c.cfg.Target, err)
		}
		if err := checkBank(r, bank); err != nil {
			return nil, fmt.Errorf("p4rt %s: %w", c.cfg.Target, err)
		}
		job.parts = append(job.parts, p.newReadPart(r, bank))
	}
	if p.readout == nil || !s.isPrimary() {
		return s.readBanksByRegister(ctx, bank, job.parts)
	}
	for _, part := range job.parts {
		if part.reg.Readout == nil {
			return nil, fmt.Errorf("p4rt %s: %w: register %s has no read-out (no @%s annotation)",
				c.cfg.Target, ErrUnsupported, part.reg.Name, p4values.AnnotationReadout)
		}
	}
	job.skipEmpty(ctx)
	return job.run(ctx)
}

func checkBank(r *p4values.Register, bank int) error {
	banks := 1
	if r.Readout != nil {
		banks = r.Readout.Banks
	}
	if bank < 0 || bank >= banks {
		return fmt.Errorf("register %s has no bank %d: it has %d", r.Name, bank, banks)
	}
	return nil
}

func bankCells(r *p4values.Register) int {
	if r.Readout != nil {
		return r.Readout.Cells
	}
	return r.Size
}

// readPart is one register of a job. The stream's receiver writes its cells until the job has
// ended.
type readPart struct {
	reg     *p4values.Register
	cells   *Cells
	arrived int    // number of cells read or known to be zero
	asked   []bool // packets that were requested, or whose cells are known to be zero
	lost    []CellRange
	cause   error

	packets uint64 // packets that changed the bank since it was cleared, if known
	known   bool
}

// newReadPart returns a part for a bank of a register. Its cells are not zeroed, because each is
// written before the part counts as read.
func (p *program) newReadPart(r *p4values.Register, bank int) *readPart {
	unused := p.unused[r.ID]
	part, ok := unused.Get().(*readPart)
	if !ok {
		n := bankCells(r)
		part = &readPart{cells: &Cells{Data: make([]byte, n*4)}, asked: make([]bool, (n+ReadoutCells-1)/ReadoutCells)}
	}
	clear(part.asked)
	*part.cells = Cells{Register: r, Bank: bank, Data: part.cells.Data, part: part, unused: unused}
	*part = readPart{reg: r, cells: part.cells, asked: part.asked}
	return part
}

// skip sets the cells of a packet to zero, without a request.
func (p *readPart) skip(packet int) {
	if !p.asked[packet] {
		p.asked[packet] = true
		p.arrived += p.size(packet)
		clear(p.cells.Data[4*packet*ReadoutCells:][:4*p.size(packet)])
	}
}

// size returns the number of cells in a packet.
func (p *readPart) size(packet int) int { return min(ReadoutCells, p.cells.Len()-packet*ReadoutCells) }

// unread returns the cells that were never requested.
func (p *readPart) unread() (out []CellRange) {
	for i, asked := range p.asked {
		if !asked {
			out = append(out, CellRange{i * ReadoutCells, p.size(i)})
		}
	}
	sortRanges(&out)
	return out
}

// readJob is one call of ReadBanks. While it runs, the session's readouts.mu guards its fields.
type readJob struct {
	s       *session
	headers *readoutHeaders
	parts   []*readPart
	done    chan struct{} // signals the last reply, or a refusal
	waiting int           // number of requests without a reply
	stopped error         // why the job ended early
}

// run sends the requests, waits for the replies, and returns the result.
func (j *readJob) run(ctx context.Context) ([]*Cells, error) {
	err := j.skipPieces(ctx)
	if err == nil {
		err = j.request(ctx, func(*readPart, int) bool { return true })
	}
	j.s.readouts.abandon(j, err)
	return j.report()
}

// request requests the packets that f selects and that were not requested before, with at most
// readoutWindow requests in flight. It waits for the replies.
func (j *readJob) request(ctx context.Context, f func(part *readPart, packet int) bool) error {
	look := time.NewTicker(j.s.c.cfg.ReadoutTimeout / readoutPoll)
	defer look.Stop()
	for _, part := range j.parts {
		m := j.headers.newRequests(part.reg.Readout.Object, uint8(part.cells.Bank))
		for i, asked := range part.asked {
			if asked || !f(part, i) {
				continue
			}
			if err := j.admit(ctx, look.C); err != nil {
				return err
			}
			seq := j.s.readouts.register(j, part, i, &j.s.c.seq)
			if err := j.s.send(ctx, m.request(uint32(i*ReadoutCells), seq)); err != nil {
				return err
			}
			j.s.c.stats.packetOuts.Add(1)
		}
	}
	return j.wait(ctx)
}

// admit waits for a free place in the window, and meanwhile checks for lost replies.
func (j *readJob) admit(ctx context.Context, look <-chan time.Time) error {
	for admitted := false; !admitted; {
		select {
		case j.s.readouts.window <- struct{}{}:
			admitted = true
		case <-look:
			if err := j.s.readouts.expire(j, j.s.c.cfg.ReadoutTimeout); err != nil {
				return err
			}
		case <-j.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-j.s.ctx.Done():
			return j.s.lost(context.Cause(j.s.ctx))
		}
		if err := j.s.readouts.stoppedBy(j); err != nil {
			if admitted {
				<-j.s.readouts.window
			}
			return err
		}
	}
	return nil
}

// wait waits until all requests have their reply or are lost.
func (j *readJob) wait(ctx context.Context) error {
	look := time.NewTicker(j.s.c.cfg.ReadoutTimeout / readoutPoll)
	defer look.Stop()
	for {
		if over, err := j.s.readouts.over(j); over {
			return err
		}
		select {
		case <-j.done:
		case <-look.C:
			if err := j.s.readouts.expire(j, j.s.c.cfg.ReadoutTimeout); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-j.s.ctx.Done():
			return j.s.lost(context.Cause(j.s.ctx))
		}
	}
}

// report returns the banks that were read completely, and errors for the others. The job must have
// ended.
func (j *readJob) report() ([]*Cells, error) {
	out := make([]*Cells, len(j.parts))
	var errs []error
	for i, p := range j.parts {
		if p.arrived == p.cells.Len() {
			j.s.emptied.note(p)
			out[i] = p.cells
			continue
		}
		e := &ReadoutError{
			Target: j.s.c.cfg.Target, Register: p.reg.Name, Object: p.reg.Readout.Object, Bank: p.cells.Bank,
			Lost: p.lost, Cause: p.cause,
		}
		if e.Cause == nil {
			e.Cause = j.stopped
		}
		e.Unread = p.unread()
		errs = append(errs, e)
	}
	if len(errs) == 0 {
		return out, nil
	}
	return out, errors.Join(errs...)
}

// pendingRange is a request that has no reply yet.
type pendingRange struct {
	job   *readJob // nil if the job has ended
	part  *readPart
	first int
	sent  time.Time
}

// readouts are the requests of a session that have no reply yet.
type readouts struct {
	window  chan struct{} // holds a token for each request
	mu      sync.Mutex
	pending map[uint32]*pendingRange
	replied time.Time // time of the last reply
}

func (r *readouts) init() {
	r.window, r.pending = make(chan struct{}, readoutWindow), map[uint32]*pendingRange{}
}

// seqSource numbers the requests of all sessions of a client, so that a late reply never matches a
// newer request.
type seqSource struct{ n atomic.Uint32 }

func (s *seqSource) next() uint32 { return s.n.Add(1) }

// register adds a request before it is sent. The caller holds a token of the window, which the
// reply returns.
func (r *readouts) register(j *readJob, part *readPart, packet int, seqs *seqSource) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	seq := seqs.next()
	now := time.Now()
	if len(r.pending) == 0 {
		r.replied = now
	}
	r.pending[seq] = &pendingRange{job: j, part: part, first: packet * ReadoutCells, sent: now}
	j.waiting++
	part.asked[packet] = true
	return seq
}

// settle removes a request of a job and returns its token. The caller holds r.mu.
func (r *readouts) settle(seq uint32, p *pendingRange) {
	r.remove(seq)
	p.job.waiting--
	if p.job.waiting == 0 {
		p.job.poke()
	}
}

// remove removes a request and returns its token. The caller holds r.mu.
func (r *readouts) remove(seq uint32) {
	delete(r.pending, seq)
	<-r.window
}

// lose records the cells of a request as lost and removes the request. The caller holds r.mu.
func (r *readouts) lose(seq uint32, p *pendingRange, why error) {
	p.lose(why)
	r.settle(seq, p)
}

// lose records the cells of a request as lost.
func (p *pendingRange) lose(why error) {
	n := min(ReadoutCells, p.part.cells.Len()-p.first)
	if l := len(p.part.lost); l > 0 && p.part.lost[l-1].First+p.part.lost[l-1].Count == p.first {
		p.part.lost[l-1].Count += n
	} else {
		p.part.lost = append(p.part.lost, CellRange{p.first, n})
	}
	if p.part.cause == nil {
		p.part.cause = why
	}
}

// reply handles a reply from the receiver. It returns false if no job waits for the reply.
func (r *readouts) reply(m readoutReply) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.pending[m.seq]
	if !ok {
		return false
	}
	r.replied = time.Now()
	if p.job == nil {
		r.remove(m.seq)
		return false
	}
	reg := p.part.reg
	switch {
	case m.reason == reasonRefused:
		p.job.stop(fmt.Errorf("the program refused cells %d-%d of object %d", p.first, p.first+ReadoutCells-1,
			reg.Readout.Object))
		r.lose(m.seq, p, nil)
	case m.object != uint32(reg.Readout.Object) || m.bank != uint32(p.part.cells.Bank) ||
		m.index != uint32(p.first) || len(m.cells) != readoutBytes:
		r.lose(m.seq, p, fmt.Errorf("a reply of %d bytes for object %d bank %d cell %d answers "+
			"the request for object %d bank %d cell %d",
			len(m.cells), m.object, m.bank, m.index, reg.Readout.Object, p.part.cells.Bank, p.first))
	default:
		p.part.arrived += copyCells(p.part.cells.Data[4*p.first:], m.cells)
		r.settle(m.seq, p)
	}
	return true
}

// copyCells copies big-endian cells to little-endian ones and returns their number.
func copyCells(dst, src []byte) int {
	n := min(len(dst), len(src)) &^ 3
	dst, src = dst[:n], src[:n]
	for i := 0; i+4 <= len(src) && i+4 <= len(dst); i += 4 {
		binary.LittleEndian.PutUint32(dst[i:], binary.BigEndian.Uint32(src[i:]))
	}
	return n / 4
}

// refused handles the switch's error about the request with this number.
func (r *readouts) refused(seq int64, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch p, ok := r.pending[uint32(seq)]; {
	case !ok || seq == noSeq:
	case p.job == nil:
		r.remove(uint32(seq))
	default:
		p.job.stop(why)
		r.lose(uint32(seq), p, why)
	}
}

// expire records requests that have had no reply for timeout as lost. If no reply at all arrived
// in that time, it ends the job.
func (r *readouts) expire(j *readJob, timeout time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	expired := false
	for seq, p := range r.pending {
		switch late := now.Sub(p.sent) > timeout; {
		case late && p.job == j:
			r.lose(seq, p, fmt.Errorf("no reply within %v", timeout))
			expired = true
		case late && p.job == nil:
			r.remove(seq)
		}
	}
	if expired && now.Sub(r.replied) > timeout {
		j.stop(fmt.Errorf("the switch no longer answers read-outs (none for %v)", timeout))
	}
	return j.stopped
}

// abandon ends a job: its requests without a reply are lost. They keep their tokens until the
// reply or ReadoutTimeout, because they are still in the switch's queues.
func (r *readouts) abandon(j *readJob, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if why != nil {
		j.stop(why)
	}
	for _, p := range r.pending {
		if p.job == j {
			p.lose(j.stopped)
			p.job, p.part = nil, nil
		}
	}
	for _, p := range j.parts {
		sortRanges(&p.lost)
	}
}

func (r *readouts) over(j *readJob) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return j.waiting == 0 || j.stopped != nil, j.stopped
}

func (r *readouts) stoppedBy(j *readJob) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return j.stopped
}

// sessionOver ends every job of the session.
func (r *readouts) sessionOver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pending {
		if p.job != nil {
			p.job.poke()
		}
	}
}

// stop ends a job early; only the first reason is kept. The caller holds r.mu.
func (j *readJob) stop(why error) {
	if j.stopped == nil {
		j.stopped = why
	}
	j.poke()
}

func (j *readJob) poke() {
	select {
	case j.done <- struct{}{}:
	default:
	}
}

// readoutRequests builds the requests for one bank of one object, reusing one message.
type readoutRequests struct {
	message    p4v1.StreamMessageRequest
	index, seq *p4v1.PacketMetadata
	values     [2][4]byte
}

// request returns the request for 256 cells. It is valid until the next call.
func (m *readoutRequests) request(index, seq uint32) *p4v1.StreamMessageRequest {
	m.index.Value, m.seq.Value = shortest(&m.values[0], index), shortest(&m.values[1], seq)
	return &m.message
}

// shortest writes a number to room in P4Runtime's canonical form.
func shortest(room *[4]byte, v uint32) []byte {
	binary.BigEndian.PutUint32(room[:], v)
	i := 0
	for i < 3 && room[i] == 0 {
		i++
	}
	return room[i:]
}

// readoutPadding is the payload that the switch overwrites with cells, because BMv2 cannot make a
// packet grow by more than 512 bytes.
var readoutPadding [readoutBytes]byte

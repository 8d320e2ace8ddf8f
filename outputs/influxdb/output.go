// SPDX-License-Identifier: Apache-2.0

// Passes the store's batches through memory or the spool to the database.

package influxdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/outputs/spool"
)

const (
	tapBatches   = 256              // batches of the store queued for encoding
	memoryChunks = 16               // requests queued in memory before the spool is used
	firstPause   = time.Second / 4  // before the second attempt after a failure; then doubled
	longestPause = 30 * time.Second // between attempts while the database is unreachable
	pauseJitter  = 0.2              // random share of pauses, so that collectors do not retry together
	refusedPause = time.Minute      // between attempts while the database refuses
	sameFailures = 5                // equal failures of one batch after which its lines are tried one by one
	anyFailures  = 20               // failures of one batch, equal or not, after which its lines are tried one by one

	rejectedFile = "rejected.lp" // lines that InfluxDB rejects, in the spool's directory
	maxRejected  = 4 << 20       // bytes of each of the two files of rejected lines
)

// Output writes a store's batches to InfluxDB. It is an outputs.Output.
type Output struct {
	name   string
	config Config
	logger *slog.Logger
	writer *writer
	enc    *encoder
	tap    *store.Tap
	dir    string // directory of the spool

	after func(time.Duration) <-chan time.Time // time.After; tests replace it

	mu       sync.Mutex
	wake     chan struct{} // holds a token when there are points to send
	memory   []queued      // oldest first; empty while spooling
	lastID   uint64        // number of the newest chunk in memory
	spool    *spool.Queue
	moved    uint64 // number in the spool of a chunk that was moved there while it was being sent
	spooling bool   // new chunks are appended to the spool
	status   outputs.Status
	lastErr  string // error of the last failed request; empty after a delivery
	lastDrop string // reason of the last dropped points
	sent     uint64
	dropped  uint64 // points that the database rejected
}

// queued is a chunk in memory. If it is moved to the spool while it is being sent, so that a crash
// does not lose it, the spool's number identifies it from then on.
type queued struct {
	chunk
	id uint64
}

// handle identifies the chunk that is being sent.
type handle struct {
	id      uint64 // number in memory
	seq     uint64 // number in the spool
	spooled bool
}

var _ outputs.Output = (*Output)(nil)

// New returns an output with these settings. It fails if the settings contradict each other, or if
// a file that they name cannot be read.
func New(name string, c Config, certificates *certs.Store, logger *slog.Logger) (*Output, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	logger = logger.With("output", name)
	tlsConfig, err := c.tlsConfig(name, certificates)
	if err != nil {
		return nil, err
	}
	o := &Output{
		name: name, config: c, logger: logger, writer: newWriter(&c, tlsConfig, logger),
		after: time.After, wake: make(chan struct{}, 1), status: outputs.Up,
	}
	o.enc = &encoder{
		unsigned: c.Unsigned,
		exclude:  map[string]bool{},
		lists:    map[listKey]*liveRows{},
		limit:    newSeriesLimit(c.MaxSeries, c.SeriesWindow),
		maxBytes: int(c.BatchBytes),
		maxLines: c.BatchPoints,
		emit:     o.enqueue,
		logger:   logger,
	}
	for _, m := range c.Exclude {
		o.enc.exclude[m] = true
	}
	return o, nil
}

// Name returns the output's name in the configuration.
func (o *Output) Name() string { return o.name }

// Type returns "influxdb".
func (o *Output) Type() string { return "influxdb" }

// Start opens the spool and begins to receive batches. Points that an earlier run left in the spool
// are sent first.
func (o *Output) Start(s *store.Store) error {
	dir, err := o.config.spoolDir(o.name)
	if err != nil {
		return err
	}
	q, err := spool.Open(spool.Options{
		Dir:      dir,
		MaxBytes: int64(o.config.Spool.MaxBytes),
		MaxAge:   o.config.Spool.MaxAge,
		Logger:   o.logger,
	})
	if err != nil {
		o.writer.close()
		return fmt.Errorf("the spool cannot be opened; see spool.dir: %w", err)
	}
	o.dir, o.writer.aside = dir, o.aside
	o.mu.Lock()
	o.spool = q
	if left := q.Stats(); left.Records > 0 {
		o.spooling = true
		o.logger.Info("points of an earlier run are in the spool", "points", left.Items, "dir", dir)
	}
	o.mu.Unlock()
	o.tap = s.Tap(tapBatches)
	return nil
}

// Run delivers points until ctx ends. It then delivers queued points for at most StopTimeout, and
// leaves the rest in the spool.
func (o *Output) Run(ctx context.Context) error {
	if o.tap == nil {
		return errors.New("influxdb: Run without Start")
	}
	sending, stopSending := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSending()
	encoded := make(chan struct{}) // closed after the last chunk was encoded
	sender := make(chan struct{})
	go func() {
		defer close(sender)
		o.send(sending, encoded)
	}()
	o.encode(ctx)
	close(encoded)
	select {
	case <-sender:
	case <-time.After(o.config.StopTimeout):
		stopSending()
		<-sender
	}
	return o.finish()
}

// encode encodes batches until ctx ends or the store closes.
func (o *Output) encode(ctx context.Context) {
	defer o.tap.Close()
	defer func() {
		o.enc.endAll()
		o.enc.flush()
	}()
	flush := time.NewTimer(o.config.FlushInterval)
	defer flush.Stop()
	var tapDropped uint64
	for {
		select {
		case <-ctx.Done():
			// The tap still has batches published before the end.
			for {
				select {
				case b, ok := <-o.tap.C():
					if ok {
						o.add(b)
						continue
					}
				default:
				}
				return
			}
		case b, ok := <-o.tap.C():
			if !ok {
				return
			}
			o.add(b)
		case <-flush.C:
			o.enc.flush()
			flush.Reset(o.config.FlushInterval)
		}
		if n := o.tap.Dropped(); n > tapDropped {
			o.logger.Warn("batches were dropped because encoding is too slow", "batches", n-tapDropped)
			tapDropped = n
		}
	}
}

// add encodes a batch.
func (o *Output) add(b *store.Batch) {
	for i := range b.Tables {
		o.enc.publish(b, &b.Tables[i])
	}
}

// enqueue stores a chunk from the encoder: in memory while the database is fast enough, otherwise
// in the spool.
func (o *Output) enqueue(c chunk) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.spooling && len(o.memory) >= memoryChunks {
		o.spill()
	}
	if o.spooling {
		o.toSpool(c)
	} else {
		o.lastID++
		o.memory = append(o.memory, queued{c, o.lastID})
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// spill moves the chunks in memory to the spool, including the chunk that is being sent. The
// caller holds o.mu.
func (o *Output) spill() {
	for i, q := range o.memory {
		o.toSpool(q.chunk)
		if i == 0 {
			// The chunk may be in flight: Next makes the spool treat it as taken.
			if r, ok, err := o.spool.Next(); err == nil && ok {
				o.moved = r.Seq
			}
		}
	}
	o.memory = nil
	o.spooling = true
}

// toSpool appends a chunk to the spool. The caller holds o.mu.
func (o *Output) toSpool(c chunk) {
	_, err := o.spool.Append(spool.Record{Time: c.time, Items: uint32(c.points), Data: []byte(c.lines)})
	if err != nil && o.lastDrop != err.Error() {
		o.lastDrop = err.Error()
		o.logger.Error("points are dropped because the spool does not accept them", "points", c.points, "error", err)
	}
}

// head returns the oldest chunk, which stays queued until done is called.
func (o *Output) head() (chunk, handle, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.spooling {
		r, ok, err := o.spool.Next()
		if err != nil {
			o.lastErr = err.Error()
			o.logger.Error("the spool cannot be read", "error", err)
		}
		if ok {
			return chunk{string(r.Data), int(r.Items), r.Time}, handle{seq: r.Seq, spooled: true}, true
		}
		o.spooling = false
	}
	if len(o.memory) == 0 {
		return chunk{}, handle{}, false
	}
	return o.memory[0].chunk, handle{id: o.memory[0].id}, true
}

// done removes a chunk that was delivered, possibly without points that InfluxDB rejected.
func (o *Output) done(c chunk, h handle, rejected drops) {
	o.mu.Lock()
	defer o.mu.Unlock()
	dropped := min(rejected.points, c.points)
	o.sent += uint64(c.points - dropped)
	o.dropped += uint64(dropped)
	if dropped > 0 {
		o.lastDrop = fmt.Sprintf("InfluxDB rejected %d of %d points; the last reason: "+
			"%s", dropped, c.points, rejected.reason)
	}
	switch {
	case h.spooled:
		o.spool.Ack(h.seq)
	case len(o.memory) > 0 && o.memory[0].id == h.id:
		o.memory[0].chunk = chunk{}
		o.memory = o.memory[1:]
	default: // the chunk was moved to the spool while it was being sent
		o.spool.Ack(o.moved)
	}
	if o.status != outputs.Up {
		o.logger.Info("InfluxDB accepts points again", "queued", o.queued())
	}
	o.status, o.lastErr = outputs.Up, ""
}

// failed records why a request was not accepted, moves queued points to the spool, and returns the
// pause before the next attempt. soon keeps the pause short: lines of the request may be the
// reason, which only further attempts show.
func (o *Output) failed(err *undelivered, retry *backoff.ExponentialBackOff, soon bool) time.Duration {
	level, wait := slog.LevelWarn, err.after
	if err.status == outputs.Refused {
		level = slog.LevelError
	}
	if err.status == outputs.Refused && !soon {
		wait = max(wait, refusedPause)
	} else {
		wait += retry.NextBackOff()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.spooling {
		o.spill()
	}
	if o.status != err.status || o.lastErr != err.Error() {
		o.logger.Log(context.Background(), level, "InfluxDB does not accept points; they remain queued",
			"status", err.status.String(), "error", err, "queued", o.queued())
	}
	o.status, o.lastErr = err.status, err.Error()
	return wait
}

// queued returns the number of queued points. The caller holds o.mu.
func (o *Output) queued() uint64 {
	n := o.enc.pending.Load()
	for _, q := range o.memory {
		n += uint64(q.points)
	}
	if o.spool != nil {
		n += o.spool.Stats().Items
	}
	return n
}

// send delivers points until ctx ends. Once encoded is closed, it ends when no points are left or
// the database is unreachable.
func (o *Output) send(ctx context.Context, encoded <-chan struct{}) {
	retry := &backoff.ExponentialBackOff{
		InitialInterval: firstPause, MaxInterval: longestPause, Multiplier: 2, RandomizationFactor: pauseJitter,
	}
	var tries tries
	for ctx.Err() == nil {
		c, h, ok := o.head()
		if !ok {
			select {
			case <-ctx.Done():
			case <-o.wake:
			case <-encoded:
				if _, _, more := o.head(); !more {
					return
				}
			}
			continue
		}
		rejected, err := o.writer.deliver(ctx, c.lines)
		if err != nil {
			if due, patient := tries.failed(c, err); due {
				rejected, err = o.writer.isolate(ctx, c.lines, err, patient)
				tries.isolated(rejected.points > 0 && err == nil && !patient)
			}
		}
		if err == nil {
			o.done(c, h, rejected)
			retry.Reset()
			tries.reset()
			continue
		}
		if ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-encoded:
			return // remaining points stay in the spool
		case <-o.after(o.failed(err, retry, tries.begun())):
		}
	}
}

// tries counts failures of a batch.
type tries struct {
	// number of points in the batch, which identifies it: its handle changes when it moves to the
	// spool
	points int
	kind   string // kind of the last failure
	n      int    // failures of the kind in a row
	all    int    // failures of every kind
	over   bool   // the lines were tried one by one, and are not the reason

	// ofLines is the kind of failure that some lines of an earlier batch caused, or empty. If a
	// further batch fails in this way, its lines are tried one by one at once, because every epoch
	// may bring such lines.
	ofLines string
}

// reset begins to count anew, for the next batch.
func (t *tries) reset() { *t = tries{ofLines: t.ofLines} }

// isolated records whether some lines caused the failure, after all were tried one by one.
func (t *tries) isolated(found bool) {
	t.ofLines = ""
	if found {
		t.ofLines = t.kind
	}
}

// begun reports whether failures are counted, and the lines have not been tried one by one yet.
func (t *tries) begun() bool { return t.n > 0 && !t.over }

// failed counts a failure and reports whether the lines are to be tried one by one, because some
// of them may be the reason: the batch has failed sameFailures times in a row in the same way, or
// once as an earlier batch did because of its lines, or anyFailures times in any way. In the last
// case the server may lack time or memory, so that the lines must be tried patiently. Afterwards,
// failed counts from zero again.
func (t *tries) failed(c chunk, err *undelivered) (due, patient bool) {
	if !err.answered() {
		t.reset()
		return false, false
	}
	if t.points != c.points {
		*t = tries{points: c.points, ofLines: t.ofLines}
	}
	if kind := err.kind(); t.kind != kind || !err.mayBeOfLines() {
		t.n, t.over, t.kind = 0, false, kind
	}
	if t.all++; err.mayBeOfLines() {
		t.n++
	}
	patient = t.all >= anyFailures
	again := t.n > 0 && t.kind == t.ofLines && !t.over
	if !patient && !again && t.n < sameFailures {
		return false, false
	}
	if t.n, t.over = 0, true; patient {
		t.all = 0
	}
	return true, patient
}

// aside appends a line that InfluxDB rejects to a file in the spool's directory. When the file is
// full, it replaces the second one, and a new file begins.
func (o *Output) aside(line string) {
	name := filepath.Join(o.dir, rejectedFile)
	if info, err := os.Stat(name); err == nil && info.Size()+int64(len(line)) > maxRejected {
		_ = os.Rename(name, name+".1") // if the rename fails, opening the file reports the error
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(line)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		o.logger.Warn("a rejected point cannot be kept", "file", name, "error", err)
	}
}

// finish moves queued points to the spool, and closes spool and connections.
func (o *Output) finish() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.memory) > 0 {
		o.spill()
	}
	if left := o.spool.Stats(); left.Items > 0 {
		o.logger.Info("points remain in the spool for the next start", "points", left.Items)
	}
	o.status = outputs.Stopped
	o.writer.close()
	if err := o.spool.Close(); err != nil {
		return fmt.Errorf("influxdb: %w", err)
	}
	return nil
}

// State returns the output's state.
func (o *Output) State() outputs.State {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := outputs.State{
		Status: o.status, Sent: o.sent, Dropped: o.dropped, Queued: o.queued(),
		LastError: cmp.Or(o.lastErr, o.lastDrop),
	}
	s.Dropped += o.enc.overSeries.Load() + o.enc.unencodable.Load()
	if o.tap != nil {
		s.Dropped += o.tap.DroppedRows()
	}
	if o.spool != nil {
		q := o.spool.Stats()
		s.Spooled = uint64(q.Bytes)
		s.Dropped += q.DroppedSize + q.DroppedAge + q.DroppedCorrupt
	}
	return s
}

// SPDX-License-Identifier: Apache-2.0

// The output: from the store's batches through memory or the spool to the database.

package influxdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/outputs/spool"
)

const (
	tapBatches   = 256              // batches of the store that wait to be encoded
	memoryChunks = 16               // requests that wait in memory before the spool is used
	firstPause   = time.Second / 4  // before the first attempt after a failure
	longestPause = 30 * time.Second // between attempts while the database is away
	refusedPause = time.Minute      // between attempts while it refuses
)

// Output writes a store's batches to InfluxDB. It is an outputs.Output.
type Output struct {
	name   string
	config Config
	logger *slog.Logger
	writer *writer
	enc    *encoder
	tap    *store.Tap

	// pause waits; tests replace it.
	pause func(ctx context.Context, d time.Duration) error

	mu       sync.Mutex
	wake     chan struct{} // has a token when there is something to send
	memory   []queued      // oldest first; empty while spooling
	lastID   uint64        // of the newest chunk in memory
	spool    *spool.Queue
	moved    uint64 // number in the spool of the chunk that was being sent when it was moved there
	spooling bool   // what arrives goes to the spool, behind what is there
	status   outputs.Status
	lastErr  string
	sent     uint64
	dropped  uint64 // refused by the database, or not taken by the spool
}

// queued is a chunk in memory. While it is being sent it may be moved to the spool,
// so that a crash does not lose it; then it is known by the spool's number.
type queued struct {
	chunk
	id uint64
}

// handle says where the chunk that is being sent came from.
type handle struct {
	id      uint64 // in memory
	seq     uint64 // in the spool
	spooled bool
}

var _ outputs.Output = (*Output)(nil)

// New returns an output with these settings. It fails when they are wrong, or a file
// that they name cannot be read.
func New(name string, c Config, logger *slog.Logger) (*Output, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	logger = logger.With("output", name)
	w, err := newWriter(&c, logger)
	if err != nil {
		return nil, err
	}
	o := &Output{
		name: name, config: c, logger: logger, writer: w,
		pause: pause, wake: make(chan struct{}, 1), status: outputs.Up,
	}
	o.enc = &encoder{
		unsigned: c.Unsigned,
		exclude:  map[string]bool{},
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

// Name is the output's name in the configuration.
func (o *Output) Name() string { return o.name }

// Type is "influxdb".
func (o *Output) Type() string { return "influxdb" }

// Start opens the spool and begins to take batches. What an earlier run left in the
// spool is sent first.
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
		return fmt.Errorf("points have nowhere to wait; see spool.dir: %w", err)
	}
	o.mu.Lock()
	o.spool = q
	if left := q.Stats(); left.Records > 0 {
		o.spooling = true
		o.logger.Info("points of an earlier run wait in the spool", "points", left.Items, "dir", dir)
	}
	o.mu.Unlock()
	o.tap = s.Tap(tapBatches)
	return nil
}

// Run delivers until ctx ends. Then it tries for StopTimeout to deliver what is left,
// and leaves the rest in the spool.
func (o *Output) Run(ctx context.Context) error {
	if o.tap == nil {
		return errors.New("influxdb: Run without Start")
	}
	sending, stopSending := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSending()
	encoded := make(chan struct{}) // closed when nothing more comes
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

// encode takes batches until ctx ends or the store closes.
func (o *Output) encode(ctx context.Context) {
	defer o.tap.Close()
	flush := time.NewTimer(o.config.FlushInterval)
	defer flush.Stop()
	var tapDropped uint64
	for {
		select {
		case <-ctx.Done():
			// What was published before the end is in the tap.
			for {
				select {
				case b, ok := <-o.tap.C():
					if ok {
						o.add(b)
						continue
					}
				default:
				}
				o.enc.flush()
				return
			}
		case b, ok := <-o.tap.C():
			if !ok {
				o.enc.flush()
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

func (o *Output) add(b *store.Batch) {
	for i := range b.Tables {
		if p := &b.Tables[i]; !p.Delete {
			o.enc.add(b.Target, b.Time, p.Table)
		}
	}
}

// enqueue takes a chunk from the encoder: into memory while the database keeps up,
// into the spool otherwise.
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

// spill moves what is in memory to the spool, the chunk that is being sent included.
// It needs mu held.
func (o *Output) spill() {
	for i, q := range o.memory {
		o.toSpool(q.chunk)
		if i == 0 {
			// It may be on its way: the spool is told so, as it would be had the
			// chunk come from there.
			if r, ok, err := o.spool.Next(); err == nil && ok {
				o.moved = r.Seq
			}
		}
	}
	o.memory = nil
	o.spooling = true
}

// toSpool needs mu held.
func (o *Output) toSpool(c chunk) {
	_, err := o.spool.Append(spool.Record{Time: c.time, Items: uint32(c.points), Data: []byte(c.lines)})
	if err != nil {
		o.dropped += uint64(c.points)
		o.lastErr = err.Error()
		o.logger.Error("points are lost because the spool does not take them", "points", c.points, "error", err)
	}
}

// head returns the oldest chunk, which stays where it is until done.
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

// done takes a chunk out that was delivered but for some points.
func (o *Output) done(c chunk, h handle, dropped int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	dropped = min(dropped, c.points)
	o.sent += uint64(c.points - dropped)
	o.dropped += uint64(dropped)
	switch {
	case h.spooled:
		o.spool.Ack(h.seq)
	case len(o.memory) > 0 && o.memory[0].id == h.id:
		o.memory[0].chunk = chunk{}
		o.memory = o.memory[1:]
	default: // it was moved to the spool while it was being sent
		o.spool.Ack(o.moved)
	}
	if o.status != outputs.Up {
		o.logger.Info("InfluxDB takes points again", "queued", o.queued())
		o.status, o.lastErr = outputs.Up, ""
	}
}

// failed notes that the database is away or refuses, and makes what waits safe.
func (o *Output) failed(status outputs.Status, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.spooling {
		o.spill()
	}
	if o.status != status || o.lastErr != err.Error() {
		level := slog.LevelWarn
		if status == outputs.Refused {
			level = slog.LevelError
		}
		o.logger.Log(context.Background(), level, "InfluxDB does not take points; they are kept", "status", string(status), "error", err, "queued", o.queued())
	}
	o.status, o.lastErr = status, err.Error()
}

// queued needs mu held.
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

// send delivers until ctx ends, or until nothing is left once encoded is closed or
// the database is away then.
func (o *Output) send(ctx context.Context, encoded <-chan struct{}) {
	failures := 0
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
		dropped, err := o.writer.deliver(ctx, c.lines)
		if err == nil {
			o.done(c, h, dropped)
			failures = 0
			continue
		}
		if ctx.Err() != nil {
			return
		}
		var wait time.Duration
		var away *awayError
		if errors.As(err, &away) {
			o.failed(outputs.Down, err)
			wait = backoff(failures, away.after)
			failures++
		} else {
			o.failed(outputs.Refused, err)
			wait = refusedPause
		}
		waiting, cancel := context.WithCancel(ctx)
		stop := make(chan struct{})
		go func() { // the end of the output ends the wait
			defer close(stop)
			select {
			case <-encoded:
				cancel()
			case <-waiting.Done():
			}
		}()
		err = o.pause(waiting, wait)
		cancel()
		<-stop
		if err != nil {
			return // the rest waits in the spool
		}
	}
}

// backoff returns how long to wait after so many failures, at least what the database
// asked for, up to a quarter more so that several collectors do not come at once.
func backoff(failures int, asked time.Duration) time.Duration {
	d := longestPause
	if failures < 8 {
		d = min(firstPause<<failures, longestPause)
	}
	d = max(d, asked)
	return d + rand.N(d/4+1)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// finish puts what is left into the spool and closes everything.
func (o *Output) finish() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.memory) > 0 {
		o.spill()
	}
	if left := o.spool.Stats(); left.Items > 0 {
		o.logger.Info("points wait in the spool for the next start", "points", left.Items)
	}
	o.status = outputs.Stopped
	o.writer.close()
	if err := o.spool.Close(); err != nil {
		return fmt.Errorf("influxdb: %w", err)
	}
	return nil
}

// State is how the output is doing.
func (o *Output) State() outputs.State {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := outputs.State{Status: o.status, Sent: o.sent, Dropped: o.dropped, LastError: o.lastErr, Queued: o.queued()}
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

// Counters tell apart what State counts together, and what it does not count.
type Counters struct {
	Rejected    uint64 // points refused by the database, or lost because the spool took none
	OverSeries  uint64 // rows beyond MaxSeries
	Unencodable uint64 // rows that line protocol cannot carry
	Saturated   uint64 // values above 2^63-1, sent as that
	SpoolSize   uint64 // points dropped because the spool was full
	SpoolAge    uint64 // points dropped because they were older than MaxAge
	SpoolDamage uint64 // points in damaged parts of the spool
	TapDropped  uint64 // batches dropped because encoding was too slow
}

// Counters returns the counters.
func (o *Output) Counters() Counters {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := Counters{
		Rejected:    o.dropped,
		OverSeries:  o.enc.overSeries.Load(),
		Unencodable: o.enc.unencodable.Load(),
		Saturated:   o.enc.saturated.Load(),
	}
	if o.spool != nil {
		q := o.spool.Stats()
		c.SpoolSize, c.SpoolAge, c.SpoolDamage = q.DroppedSize, q.DroppedAge, q.DroppedCorrupt
	}
	if o.tap != nil {
		c.TapDropped = o.tap.Dropped()
	}
	return c
}

// SPDX-License-Identifier: Apache-2.0

// Package codec encodes the form in which the collectors of a cluster exchange parts of epochs and
// results: messages of package clusterv1 and of the plugin contract, in transfers that are divided
// into chunks.
//
// The decoded bytes come from another process. Every length is bounded, and memory grows with the
// bytes that arrived.
package codec

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
)

// ChunkBytes is the largest size of a chunk without its header.
const ChunkBytes = 512 << 10

// Chunker divides a transfer into chunks while it is written. Close sends the last one.
type Chunker struct {
	member   string
	transfer uint64
	send     func(chunk []byte, last bool) error
	data     []byte // bytes that were not sent yet
	chunk    []byte // sent last
	sent     uint64
}

// NewChunker returns the chunker of a transfer. All chunks share one buffer, so send must not keep
// a chunk.
func NewChunker(member string, transfer uint64, send func(chunk []byte, last bool) error) *Chunker {
	return &Chunker{member: member, transfer: transfer, send: send}
}

// Write implements io.Writer.
func (c *Chunker) Write(data []byte) (int, error) {
	written := 0
	for written < len(data) {
		if len(c.data) == ChunkBytes {
			if err := c.flush(false); err != nil {
				return written, err
			}
		}
		n := min(ChunkBytes-len(c.data), len(data)-written)
		c.data = append(c.data, data[written:written+n]...)
		written += n
	}
	return written, nil
}

// Close sends the last chunk.
func (c *Chunker) Close() error { return c.flush(true) }

func (c *Chunker) flush(last bool) error {
	head, err := proto.Marshal(&clusterv1.Chunk{Member: c.member, Transfer: c.transfer, Offset: c.sent, Last: last})
	if err != nil {
		return err
	}
	c.chunk = append(protowire.AppendBytes(c.chunk[:0], head), c.data...)
	c.sent += uint64(len(c.data))
	c.data = c.data[:0]
	return c.send(c.chunk, last)
}

// Why a chunk is refused.
var (
	// ErrCutShort means that chunks before this one are missing.
	ErrCutShort = errors.New("cut short")
	// ErrTooLarge means that a transfer has more bytes than the limit.
	ErrTooLarge = errors.New("too large")
	// ErrRepeated means that the transfer, or a later one, is complete.
	ErrRepeated = errors.New("repeated")
	// ErrRefused means that an earlier chunk of the transfer was refused; its reason is wrapped, too.
	ErrRefused = errors.New("refused")
)

// maxMembers bounds the collectors whose transfers are joined at the same time.
const maxMembers = 256

// Joiner joins chunks: it writes the bytes of a transfer to a sink while chunks arrive. The
// transfers of one collector do not interleave; transfers of several collectors may. A Joiner
// belongs to one goroutine.
type Joiner[S io.Writer] struct {
	limit uint64
	sink  func() S
	open  map[string]*transfer[S]
}

// transfer is the state of the transfer that a collector began last.
type transfer[S io.Writer] struct {
	number, have uint64
	sink         S
	over         bool  // whether the transfer is complete, or refused
	refused      error // reason for which the transfer is refused
}

// NewJoiner returns a joiner of transfers of at most limit bytes. sink returns the sink of a
// transfer; after an error of its Write the transfer is refused.
func NewJoiner[S io.Writer](limit int, sink func() S) *Joiner[S] {
	return &Joiner[S]{limit: uint64(limit), sink: sink, open: map[string]*transfer[S]{}}
}

// Transfer is a complete transfer.
type Transfer[S io.Writer] struct {
	Member string
	Number uint64
	Sink   S
}

// Add takes a chunk. It returns the transfer with its last chunk, otherwise nil. The errors name
// the collector. All chunks of a transfer after the first that is refused are refused with
// ErrRefused.
func (j *Joiner[S]) Add(chunk []byte) (*Transfer[S], error) {
	r := bytes.NewReader(chunk)
	var head clusterv1.Chunk
	if err := read(r, &head); err != nil {
		return nil, fmt.Errorf("chunk: %w", err)
	}
	if head.GetMember() == "" {
		return nil, errors.New("chunk: it does not name its collector")
	}
	place := func(err error) error {
		return fmt.Errorf("transfer %d of %q: %w", head.GetTransfer(), head.GetMember(), err)
	}
	t := j.open[head.GetMember()]
	if t == nil {
		if !j.room() {
			return nil, place(fmt.Errorf("transfers of more than %d collectors: %w", maxMembers, ErrTooLarge))
		}
		t = &transfer[S]{over: true}
		j.open[head.GetMember()] = t
	}
	switch {
	case head.GetTransfer() > t.number:
		*t = transfer[S]{number: head.GetTransfer(), sink: j.sink()}
	case head.GetTransfer() < t.number || t.over && t.refused == nil:
		return nil, place(ErrRepeated)
	case t.over:
		return nil, place(fmt.Errorf("%w: %w", ErrRefused, t.refused))
	}
	if err := t.add(head.GetOffset(), chunk[len(chunk)-r.Len():], j.limit); err != nil {
		*t = transfer[S]{number: t.number, over: true, refused: err}
		return nil, place(err)
	}
	if !head.GetLast() {
		return nil, nil
	}
	out := &Transfer[S]{Member: head.GetMember(), Number: t.number, Sink: t.sink}
	*t = transfer[S]{number: t.number, over: true}
	return out, nil
}

// add adds the bytes of a chunk.
func (t *transfer[S]) add(offset uint64, data []byte, limit uint64) error {
	if offset != t.have {
		return fmt.Errorf("byte %d follows byte %d: %w", offset, t.have, ErrCutShort)
	}
	if uint64(len(data)) > limit-t.have {
		return fmt.Errorf("more than %d bytes: %w", limit, ErrTooLarge)
	}
	t.have += uint64(len(data))
	_, err := t.sink.Write(data)
	return err
}

// room makes room for another collector: if there are too many, it forgets one that has no open
// transfer.
func (j *Joiner[S]) room() bool {
	if len(j.open) < maxMembers {
		return true
	}
	for member, t := range j.open {
		if t.over {
			delete(j.open, member)
			return true
		}
	}
	return false
}

// read reads the next message of a transfer.
func read(r *bytes.Reader, m proto.Message) error {
	if err := protodelim.UnmarshalFrom(r, m); err != nil {
		return unexpected(err)
	}
	return clusterv1.Known(m)
}

// unexpected is the error of a transfer that ends where a message is expected.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

// Package wire is the form in which the collectors of a cluster exchange parts of epochs and
// results: messages of package clusterv1 and of the plugin contract, in transfers that are divided
// into chunks.
//
// What it decodes comes from another process. Every length is bounded, and memory grows with the
// bytes that arrived.
package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
)

// ChunkBytes is the largest size of a chunk without its header.
const ChunkBytes = 512 << 10

// Split divides a transfer into chunks. The last one has last set.
func Split(member string, transfer uint64, payload []byte, send func(chunk []byte, last bool) error) error {
	for at := 0; ; at += ChunkBytes {
		end := min(at+ChunkBytes, len(payload))
		var chunk bytes.Buffer
		chunk.Grow(end - at + len(member) + 48)
		if _, err := protodelim.MarshalTo(&chunk, &clusterv1.Chunk{
			Member: member, Transfer: transfer, Offset: uint64(at), Total: uint64(len(payload)),
		}); err != nil {
			return err
		}
		chunk.Write(payload[at:end])
		if err := send(chunk.Bytes(), end == len(payload)); err != nil || end == len(payload) {
			return err
		}
	}
}

// Why a chunk is refused.
var (
	// ErrCutShort means that chunks before this one are missing.
	ErrCutShort = errors.New("cut short")
	// ErrTooLarge means that a transfer has more bytes than the limit.
	ErrTooLarge = errors.New("too large")
	// ErrRepeated means that the transfer, or a later one, is complete.
	ErrRepeated = errors.New("repeated")
)

// maxMembers bounds the collectors whose transfers are joined at the same time.
const maxMembers = 256

// Joiner joins chunks. The transfers of one collector do not interleave; those of several may. It
// belongs to one goroutine.
type Joiner struct {
	limit uint64
	open  map[string]*transfer
}

// transfer is the newest transfer of a collector.
type transfer struct {
	number, total uint64
	data          []byte
	broken        bool // a chunk is missing
}

// NewJoiner returns a joiner of transfers of at most limit bytes.
func NewJoiner(limit int) *Joiner { return &Joiner{limit: uint64(limit), open: map[string]*transfer{}} }

// Transfer is a complete transfer.
type Transfer struct {
	Member  string
	Number  uint64
	Payload []byte
}

// Add takes a chunk. It returns the transfer with its last chunk, otherwise nil. The error of the
// first chunk after a gap wraps ErrCutShort and names the collector; the others of the transfer are
// ignored.
func (j *Joiner) Add(chunk []byte) (*Transfer, error) {
	r := bytes.NewReader(chunk)
	var head clusterv1.Chunk
	if err := protodelim.UnmarshalFrom(r, &head); err != nil {
		return nil, fmt.Errorf("chunk: %w", unexpected(err))
	}
	data := chunk[len(chunk)-r.Len():]
	place := func(err error) error {
		return fmt.Errorf("transfer %d of %q: %w", head.GetTransfer(), head.GetMember(), err)
	}
	switch size := uint64(len(data)); {
	case head.GetMember() == "":
		return nil, errors.New("chunk: it does not name its collector")
	case head.GetTotal() > j.limit:
		return nil, place(fmt.Errorf("%d bytes of at most %d: %w", head.GetTotal(), j.limit, ErrTooLarge))
	case head.GetOffset() > head.GetTotal() || size > head.GetTotal()-head.GetOffset():
		return nil, place(fmt.Errorf("bytes %d to %d of %d: %w", head.GetOffset(), head.GetOffset()+size, head.GetTotal(),
			ErrTooLarge))
	}
	t := j.open[head.GetMember()]
	if t == nil {
		if !j.room() {
			return nil, place(fmt.Errorf("transfers of more than %d collectors: %w", maxMembers, ErrTooLarge))
		}
		t = &transfer{}
		j.open[head.GetMember()] = t
	}
	if head.GetTransfer() < t.number || head.GetTransfer() == t.number && t.data == nil && !t.broken {
		return nil, place(ErrRepeated)
	}
	if head.GetTransfer() > t.number {
		*t = transfer{number: head.GetTransfer(), total: head.GetTotal(), data: []byte{}}
	}
	if t.broken {
		return nil, nil
	}
	if have := uint64(len(t.data)); have != head.GetOffset() || t.total != head.GetTotal() {
		t.data, t.broken = nil, true
		return nil, place(fmt.Errorf("byte %d of %d follows byte %d of %d: %w", head.GetOffset(), head.GetTotal(), have,
			t.total, ErrCutShort))
	}
	if head.GetOffset() == 0 && uint64(len(data)) == t.total {
		t.data = data
	} else {
		t.data = append(t.data, data...)
	}
	if uint64(len(t.data)) < t.total {
		return nil, nil
	}
	out := &Transfer{Member: head.GetMember(), Number: t.number, Payload: t.data}
	t.data = nil
	return out, nil
}

// room makes room for another collector. It drops one without an open transfer if it must.
func (j *Joiner) room() bool {
	if len(j.open) < maxMembers {
		return true
	}
	for member, t := range j.open {
		if t.data == nil {
			delete(j.open, member)
			return true
		}
	}
	return false
}

// read reads the next message of a transfer.
func read(r *bytes.Reader, m proto.Message) error {
	return unexpected(protodelim.UnmarshalFrom(r, m))
}

// unexpected is the error of a transfer that ends where a message is expected.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

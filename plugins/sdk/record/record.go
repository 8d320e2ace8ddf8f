// SPDX-License-Identifier: Apache-2.0

// Package record writes the input of a plugin to a file and reads it back, so that epochs of a
// real network can be analyzed again: in a test (sdktest.Harness.Replay) or with "netsketch
// replay".
//
// A recording begins with the line "netsketch-epochs 2". Protobuf messages RecordEntry of the
// plugin contract follow, each after its length as a varint and its CRC-32C in four bytes,
// little-endian. The first entry is the configuration that the plugin received. Then come its
// epochs, with the changes of watched rows between them. A change of configuration or network is
// another configuration entry. The reader also accepts a recording that is compressed with gzip.
//
// A Writer and a Reader belong to one goroutine each.
package record

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// magic is the first line of a recording.
const magic = "netsketch-epochs 2\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maxEpoch bounds the data of one epoch in a recording, in bytes.
const maxEpoch = 4 << 30

// ErrDamaged is wrapped by errors of a recording that is truncated or corrupt.
var ErrDamaged = errors.New("damaged recording")

// Setup is the configuration of a plugin, with its network and state.
type Setup struct {
	Config      []byte // a JSON object, or empty
	EpochLength time.Duration
	Network     sdk.Network
	State       *sdk.State // saved by an earlier process; nil if there was none
}

// Writer writes a recording.
type Writer struct {
	out     io.Writer
	watched map[string]sdk.RowKey
}

// NewWriter begins a recording in out. Call Configure before writing the first epoch.
func NewWriter(out io.Writer) (*Writer, error) {
	if _, err := io.WriteString(out, magic); err != nil {
		return nil, fmt.Errorf("begin recording: %w", err)
	}
	return &Writer{out: out}, nil
}

// Configure adds the setup that applies to the following epochs.
func (w *Writer) Configure(s Setup) error {
	m := &pluginv1.ConfigureRequest{ConfigJson: s.Config, EpochLengthNs: int64(s.EpochLength),
		Network: s.Network.Proto()}
	if s.State != nil {
		m.State = s.State.Proto()
	}
	if err := w.put(&pluginv1.RecordEntry{Entry: &pluginv1.RecordEntry_Configure{Configure: m}}); err != nil {
		return fmt.Errorf("record configuration: %w", err)
	}
	return nil
}

// Write adds an epoch with its watched rows.
func (w *Writer) Write(epoch *sdk.Epoch) error {
	rows := make(map[string]sdk.RowKey, len(epoch.Watched))
	var update pluginv1.WatchUpdate
	for _, row := range epoch.Watched {
		rows[row.ID()] = row
		if _, there := w.watched[row.ID()]; !there {
			update.Add = append(update.Add, row.Proto())
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.watched)) {
		if _, there := rows[id]; !there {
			update.Remove = append(update.Remove, w.watched[id].Proto())
		}
	}
	if len(update.Add)+len(update.Remove) > 0 {
		if err := w.run(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Watch{Watch: &update}}); err != nil {
			return fmt.Errorf("record epoch %d: %w", epoch.Number, err)
		}
		w.watched = rows
	}
	send := func(part *pluginv1.EpochPart) error { return w.run(sdk.RunRequestOf(part)) }
	if err := epoch.Send(send, 0); err != nil {
		return fmt.Errorf("record epoch %d: %w", epoch.Number, err)
	}
	return nil
}

func (w *Writer) run(m *pluginv1.RunRequest) error {
	return w.put(&pluginv1.RecordEntry{Entry: &pluginv1.RecordEntry_Run{Run: m}})
}

func (w *Writer) put(m *pluginv1.RecordEntry) error {
	entry, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	head := binary.AppendUvarint(nil, uint64(len(entry)))
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(entry, castagnoli))
	if _, err := w.out.Write(head); err != nil {
		return err
	}
	_, err = w.out.Write(entry)
	return err
}

// Reader reads a recording.
type Reader struct {
	in      *bufio.Reader
	decoder *sdk.EpochDecoder
	setup   *Setup // setup that Next has not returned yet
	sealed  *sdk.Epoch
	watched map[string]sdk.RowKey
	epochs  int // epochs that Next has returned
}

// NewReader reads the beginning of a recording. The error wraps ErrDamaged if in does not begin
// with one.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: bufio.NewReader(in), watched: make(map[string]sdk.RowKey)}
	if start, _ := r.in.Peek(2); bytes.Equal(start, []byte{0x1f, 0x8b}) {
		plain, err := gzip.NewReader(r.in)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		r.in = bufio.NewReader(plain)
	}
	line := make([]byte, len(magic))
	if _, err := io.ReadFull(r.in, line); err != nil || string(line) != magic {
		return nil, fmt.Errorf("%w: the first line is not %q", ErrDamaged, magic[:len(magic)-1])
	}
	r.decoder = sdk.NewEpochDecoder(maxEpoch, func(e *sdk.Epoch, _ time.Duration) error {
		r.sealed = e
		return nil
	})
	return r, nil
}

// Next returns the next epoch, or io.EOF after the last one. setup is nil unless it changes with
// this epoch; the first epoch always has one. An error that wraps ErrDamaged states how many
// complete epochs precede the damage; it also wraps io.ErrUnexpectedEOF if the recording is
// truncated.
func (r *Reader) Next() (epoch *sdk.Epoch, setup *Setup, err error) {
	between := true // true between two epochs
	for r.sealed == nil {
		var m pluginv1.RecordEntry
		err := r.get(&m)
		switch {
		case errors.Is(err, io.EOF) && between:
			return nil, nil, io.EOF
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		case err == nil:
			err = r.take(&m, between)
			between = between && m.GetConfigure() != nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%w: after %d whole epochs: %w", ErrDamaged, r.epochs, err)
		}
	}
	epoch, setup = r.sealed, r.setup
	r.sealed, r.setup = nil, nil
	if r.epochs == 0 && setup == nil {
		return nil, nil, fmt.Errorf("%w: no configuration before the first epoch", ErrDamaged)
	}
	for _, id := range slices.Sorted(maps.Keys(r.watched)) {
		epoch.Watched = append(epoch.Watched, r.watched[id])
	}
	r.epochs++
	return epoch, setup, nil
}

// get reads an entry. The error is io.EOF only if no byte follows.
func (r *Reader) get(m *pluginv1.RecordEntry) error {
	size, err := binary.ReadUvarint(r.in)
	if err != nil {
		return err
	}
	if size > sdk.MaxMessage {
		return fmt.Errorf("an entry of %d bytes; at most %d are accepted", size, sdk.MaxMessage)
	}
	var sum [4]byte
	if _, err := io.ReadFull(r.in, sum[:]); err != nil {
		return io.ErrUnexpectedEOF
	}
	var entry bytes.Buffer // grows with the data, so that a wrong length costs no memory
	switch n, err := io.CopyN(&entry, r.in, int64(size)); {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %d of %d bytes of an entry", io.ErrUnexpectedEOF, n, size)
	case err != nil:
		return err
	}
	if crc32.Checksum(entry.Bytes(), castagnoli) != binary.LittleEndian.Uint32(sum[:]) {
		return errors.New("an entry with a wrong checksum")
	}
	return proto.Unmarshal(entry.Bytes(), m)
}

// take processes one entry. between is true between two epochs, where a configuration may stand.
func (r *Reader) take(m *pluginv1.RecordEntry, between bool) error {
	if c := m.GetConfigure(); c != nil && between {
		r.setup = &Setup{Config: c.GetConfigJson(), EpochLength: time.Duration(c.GetEpochLengthNs()),
			Network: sdk.NetworkFrom(c.GetNetwork())}
		if c.GetState() != nil {
			state := sdk.StateFrom(c.GetState())
			r.setup.State = &state
		}
		return nil
	}
	switch part := m.GetRun().GetMessage().(type) {
	case *pluginv1.RunRequest_Begin, *pluginv1.RunRequest_Device, *pluginv1.RunRequest_Host, *pluginv1.RunRequest_End:
		return r.decoder.Take(m.GetRun())
	case *pluginv1.RunRequest_Watch:
		for _, row := range part.Watch.GetRemove() {
			delete(r.watched, sdk.RowKeyFrom(row).ID())
		}
		for _, row := range part.Watch.GetAdd() {
			w := sdk.RowKeyFrom(row)
			r.watched[w.ID()] = w
		}
		return nil
	}
	return errors.New("an entry of an unknown kind, or a configuration within an epoch")
}

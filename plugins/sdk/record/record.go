// SPDX-License-Identifier: Apache-2.0

// Package record writes what a plugin is given to a file, and reads it back, so
// that an epoch of a real network can be analysed again on a desk.
//
// A recording begins with the line "netsketch-epochs 1". Then come messages of the
// plugin contract, each with its length before it as a varint: one ConfigureRequest
// with configuration and network, and the RunRequests of any number of epochs.
// Reading accepts a recording that is compressed with gzip.
//
// A Writer and a Reader belong to one goroutine each.
package record

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// magic is the first line of a recording.
const magic = "netsketch-epochs 1\n"

// maxEpoch bounds the data of one epoch in a recording, in bytes.
const maxEpoch = 4 << 30

// Header is what the plugin was configured with.
type Header struct {
	Config      []byte // a JSON object, or nothing
	EpochLength time.Duration
	Network     sdk.Network
}

// Writer writes a recording.
type Writer struct {
	out     io.Writer
	watched map[string]sdk.Watch
}

// NewWriter begins a recording in out.
func NewWriter(out io.Writer, header Header) (*Writer, error) {
	w := &Writer{out: out}
	if _, err := io.WriteString(out, magic); err != nil {
		return nil, fmt.Errorf("begin recording: %w", err)
	}
	_, err := protodelim.MarshalTo(out, &pluginv1.ConfigureRequest{
		ConfigJson: header.Config, EpochLengthNs: int64(header.EpochLength), Network: header.Network.Proto(),
	})
	if err != nil {
		return nil, fmt.Errorf("begin recording: %w", err)
	}
	return w, nil
}

// Write adds an epoch with the rows that are watched in it.
func (w *Writer) Write(epoch *sdk.Epoch) error {
	rows := make(map[string]sdk.Watch, len(epoch.Watched))
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
		if err := w.put(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Watch{Watch: &update}}); err != nil {
			return fmt.Errorf("record epoch %d: %w", epoch.Number, err)
		}
		w.watched = rows
	}
	if err := epoch.Send(sdk.RunSink{Send: w.put}, 0); err != nil {
		return fmt.Errorf("record epoch %d: %w", epoch.Number, err)
	}
	return nil
}

func (w *Writer) put(m *pluginv1.RunRequest) error {
	_, err := protodelim.MarshalTo(w.out, m)
	return err
}

// Reader reads a recording.
type Reader struct {
	in      *bufio.Reader
	header  Header
	decoder *sdk.EpochDecoder
	sealed  *sdk.Epoch
	watched map[string]sdk.Watch
	epochs  int
}

// NewReader reads a recording's beginning.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: bufio.NewReader(in), watched: make(map[string]sdk.Watch)}
	if start, _ := r.in.Peek(2); bytes.Equal(start, []byte{0x1f, 0x8b}) {
		plain, err := gzip.NewReader(r.in)
		if err != nil {
			return nil, fmt.Errorf("recording: %w", err)
		}
		r.in = bufio.NewReader(plain)
	}
	line := make([]byte, len(magic))
	if _, err := io.ReadFull(r.in, line); err != nil || string(line) != magic {
		return nil, fmt.Errorf("not a recording of epochs: it does not begin with the line %q", magic[:len(magic)-1])
	}
	var m pluginv1.ConfigureRequest
	if err := unmarshal(r.in, &m); err != nil {
		return nil, fmt.Errorf("recording: configuration: %w", err)
	}
	r.header = Header{Config: m.GetConfigJson(), EpochLength: time.Duration(m.GetEpochLengthNs()), Network: sdk.NetworkFrom(m.GetNetwork())}
	r.decoder = sdk.NewEpochDecoder(maxEpoch, func(e *sdk.Epoch, _ time.Duration) error {
		r.sealed = e
		return nil
	})
	return r, nil
}

// Header returns what the plugin was configured with.
func (r *Reader) Header() Header { return r.header }

// Next returns the next epoch, or io.EOF after the last one. A recording that was
// cut off is an error that wraps io.ErrUnexpectedEOF, after the epochs before the
// cut.
func (r *Reader) Next() (*sdk.Epoch, error) {
	open := false
	for r.sealed == nil {
		var m pluginv1.RunRequest
		err := unmarshal(r.in, &m)
		if errors.Is(err, io.EOF) && !open {
			return nil, io.EOF
		}
		if err == nil {
			open = true
			err = r.take(&m)
		} else if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("recording: after %d whole epochs: %w", r.epochs, err)
		}
	}
	epoch := r.sealed
	r.sealed = nil
	for _, id := range slices.Sorted(maps.Keys(r.watched)) {
		epoch.Watched = append(epoch.Watched, r.watched[id])
	}
	r.epochs++
	return epoch, nil
}

func (r *Reader) take(m *pluginv1.RunRequest) error {
	switch part := m.GetMessage().(type) {
	case *pluginv1.RunRequest_Begin, *pluginv1.RunRequest_Device, *pluginv1.RunRequest_Host, *pluginv1.RunRequest_End:
		return r.decoder.Take(m)
	case *pluginv1.RunRequest_Watch:
		for _, row := range part.Watch.GetRemove() {
			delete(r.watched, sdk.WatchFrom(row).ID())
		}
		for _, row := range part.Watch.GetAdd() {
			w := sdk.WatchFrom(row)
			r.watched[w.ID()] = w
		}
		return nil
	}
	return errors.New("a message that has no place in a recording")
}

// unmarshal reads one message. Messages are of bounded size: pieces of an epoch.
func unmarshal(in *bufio.Reader, m proto.Message) error {
	return protodelim.UnmarshalOptions{MaxSize: sdk.MaxMessage}.UnmarshalFrom(in, m)
}

// SPDX-License-Identifier: Apache-2.0

package bmv2

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Settings of simple_switch_grpc without an equivalent in P4Runtime use its older interface: Thrift
// calls in the binary protocol.

// ErrNoThrift: the installed program does not take these calls.
var ErrNoThrift = errors.New("it was built without Thrift: build it with WITH_THRIFT")

// AddToValueSet adds a value to a parser value set: its fields one after another, each in whole
// bytes.
func (s *Switch) AddToValueSet(ctx context.Context, name string, value []byte) error {
	return s.call(ctx, "standard:bm_parse_vset_add", int32(0), name, value)
}

// SetQueues sets the rate of each queue of a port in packets a second, and its depth in packets.
func (s *Switch) SetQueues(ctx context.Context, port uint32, rate uint64, depth int) error {
	if err := s.call(ctx, "simple_switch:set_egress_queue_depth", int32(port), int32(depth)); err != nil {
		return err
	}
	return s.call(ctx, "simple_switch:set_egress_queue_rate", int32(port), int64(rate))
}

// Types of Thrift's binary protocol.
const (
	thriftStop   = 0
	thriftI32    = 8
	thriftI64    = 10
	thriftString = 11
	thriftStruct = 12

	thriftCall      = 0x80010001
	thriftReply     = 0x80010002
	maxThriftString = 1 << 16
)

// call calls a method with its arguments in order and waits for its reply. It returns an error if
// the method throws.
func (s *Switch) call(ctx context.Context, method string, args ...any) error {
	if s.thrift == "" {
		return fmt.Errorf("%s: %s: %w", Program, method, ErrNoThrift)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.thrift)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", Program, method, err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("%s: %s: %w", Program, method, err)
		}
	}
	if _, err := conn.Write(encodeCall(method, args)); err != nil {
		return fmt.Errorf("%s: %s: %w", Program, method, err)
	}
	if err := readReply(bufio.NewReader(conn)); err != nil {
		return fmt.Errorf("%s: %s: %w", Program, method, err)
	}
	return nil
}

func encodeCall(method string, args []any) []byte {
	be := binary.BigEndian
	text := func(b []byte, s []byte) []byte { return append(be.AppendUint32(b, uint32(len(s))), s...) }
	b := be.AppendUint32(nil, thriftCall)
	b = be.AppendUint32(text(b, []byte(method)), 1) // sequence number
	for i, a := range args {
		field := func(kind byte) { b = be.AppendUint16(append(b, kind), uint16(i+1)) }
		switch a := a.(type) {
		case int32:
			field(thriftI32)
			b = be.AppendUint32(b, uint32(a))
		case int64:
			field(thriftI64)
			b = be.AppendUint64(b, uint64(a))
		case string:
			field(thriftString)
			b = text(b, []byte(a))
		case []byte:
			field(thriftString)
			b = text(b, a)
		}
	}
	return append(b, thriftStop)
}

// readReply reads a reply: a struct with the result, which no caller needs, in field 0 and
// exceptions in the other fields.
func readReply(r io.Reader) error {
	var kind, n uint32
	if err := errors.Join(binary.Read(r, binary.BigEndian, &kind), binary.Read(r, binary.BigEndian, &n)); err != nil {
		return err
	}
	if n > maxThriftString {
		return fmt.Errorf("a name of %d bytes", n)
	}
	rest := make([]byte, n+4) // name, sequence number
	if _, err := io.ReadFull(r, rest); err != nil {
		return err
	}
	if kind != thriftReply {
		return fmt.Errorf("it answers with a message of kind %#x", kind)
	}
	var field [3]byte
	if _, err := io.ReadFull(r, field[:1]); err != nil || field[0] == thriftStop {
		return err
	}
	if _, err := io.ReadFull(r, field[1:]); err != nil {
		return err
	}
	if field[0] == thriftStruct || !bytes.Equal(field[1:], []byte{0, 0}) {
		return errors.New("it throws an exception")
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/compiled"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

// bmv2 is simple_switch_grpc with its ports on a gRPC stream.
type bmv2 struct {
	t       *testing.T
	control string // address of P4Runtime
	data    *grpc.ClientConn
	stream  grpc.ClientStream // nil until the first packet
	out     chan frameOut
}

// startBMv2 runs the switch until the test ends.
func startBMv2(t *testing.T) *bmv2 {
	t.Helper()
	path, err := exec.LookPath("simple_switch_grpc")
	if err != nil {
		t.Skip("BMv2 is not here: simple_switch_grpc is not on the PATH")
	}
	control, data, thrift := freeAddress(t), freeAddress(t), freeAddress(t)
	_, thriftPort, _ := net.SplitHostPort(thrift)
	cmd := exec.Command(path, "--no-p4", "--device-id", strconv.Itoa(deviceID), "--thrift-port", thriftPort, "--",
		"--grpc-server-addr", control, "--cpu-port", "255", "--dp-grpc-server-addr", data)
	cmd.Dir = t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has no state worth a graceful end
		_ = cmd.Wait()
	})

	conn, err := grpc.NewClient(data, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &bmv2{t: t, control: control, data: conn, out: make(chan frameOut, 1024)}
}

// open opens the stream of packets, which BMv2 allows once it has a program.
func (sw *bmv2) open() error {
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := sw.data.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/p4.bm.DataplaneInterface/PacketStream")
	if err != nil {
		cancel()
		return fmt.Errorf("BMv2's data plane: %w", err)
	}
	sw.stream = stream
	done := make(chan struct{})
	go func() { defer close(done); sw.receive(ctx) }()
	sw.t.Cleanup(func() { cancel(); <-done })
	return nil
}

func (sw *bmv2) receive(ctx context.Context) {
	for {
		var m []byte
		if err := sw.stream.RecvMsg(&m); err != nil {
			return
		}
		f, err := decodeFrame(m)
		if err != nil {
			return
		}
		select {
		case sw.out <- f:
		case <-ctx.Done():
			return
		}
	}
}

func (sw *bmv2) address() string         { return sw.control }
func (sw *bmv2) output() <-chan frameOut { return sw.out }

// inject sends a frame into a port: message p4.bm.PacketStreamRequest.
func (sw *bmv2) inject(port uint32, frame []byte) error {
	if sw.stream == nil {
		if err := sw.open(); err != nil {
			return err
		}
	}
	m := protowire.AppendTag(nil, 2, protowire.VarintType)
	m = protowire.AppendVarint(m, deviceID)
	m = protowire.AppendTag(m, 3, protowire.VarintType)
	m = protowire.AppendVarint(m, uint64(port))
	m = protowire.AppendTag(m, 4, protowire.BytesType)
	m = protowire.AppendBytes(m, frame)
	return sw.stream.SendMsg(&m)
}

// decodeFrame reads message p4.bm.PacketStreamResponse.
func decodeFrame(m []byte) (f frameOut, err error) {
	for len(m) > 0 {
		number, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			return f, protowire.ParseError(n)
		}
		m = m[n:]
		switch {
		case number == 3 && kind == protowire.VarintType:
			v, n := protowire.ConsumeVarint(m)
			if n < 0 {
				return f, protowire.ParseError(n)
			}
			f.port = uint32(v)
		case number == 4 && kind == protowire.BytesType:
			v, n := protowire.ConsumeBytes(m)
			if n < 0 {
				return f, protowire.ParseError(n)
			}
			f.frame = v
		}
		n = protowire.ConsumeFieldValue(number, kind, m)
		if n < 0 {
			return f, protowire.ParseError(n)
		}
		m = m[n:]
	}
	return f, nil
}

// rawCodec hands messages over as they are on the wire.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) {
	if b, ok := v.(*[]byte); ok {
		return *b, nil
	}
	return nil, fmt.Errorf("raw codec: cannot send a %T", v)
}

func (rawCodec) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return errors.New("raw codec: can receive byte slices only")
	}
	*b = append([]byte(nil), data...)
	return nil
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestBMv2(t *testing.T) {
	for _, name := range compiled.Names() {
		t.Run(name, func(t *testing.T) {
			conform(t, name, startBMv2(t))
		})
	}
}

func TestBMv2Trace(t *testing.T) { conformTrace(t, "univmon", startBMv2(t), 8000) }

func TestBMv2Flips(t *testing.T) { conformFlips(t, "univmon-300k", startBMv2(t), 10_000) }

const patience = 20 * time.Second // for one step of a switch that shares its cores

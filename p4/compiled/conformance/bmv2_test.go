// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/bmv2"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/softswitch/dataplane"
)

// reference is simple_switch_grpc with its ports on a gRPC stream.
type reference struct {
	t      *testing.T
	sw     *bmv2.Switch
	conn   *grpc.ClientConn
	client *dataplane.Client // nil until the first packet: BMv2 refuses it before there is a program
	out    chan frameOut
}

// startBMv2 runs the switch until the test ends.
func startBMv2(t *testing.T) *reference {
	t.Helper()
	sw, err := bmv2.Start(t.Context(), bmv2.Config{DeviceID: deviceID})
	if errors.Is(err, bmv2.ErrNotInstalled) {
		t.Skipf("BMv2 is not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sw.Close)
	conn, err := grpc.NewClient(sw.DataPlane(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &reference{t: t, sw: sw, conn: conn, out: make(chan frameOut, 1024)}
}

// open opens the stream of packets.
func (r *reference) open() error {
	ctx, cancel := context.WithCancel(context.Background())
	client, err := dataplane.Open(ctx, r.conn, deviceID)
	for ; err == nil; client, err = dataplane.Open(ctx, r.conn, deviceID) {
		select {
		case <-client.Packets(): // BMv2 refuses streams for a moment after it was given a program
			err = client.Err()
			client.Close()
			if status.Code(err) == codes.Unavailable {
				continue
			}
		case <-time.After(20 * time.Millisecond):
		}
		break
	}
	if err != nil {
		cancel()
		return err
	}
	r.client = client
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p := range client.Packets() {
			select {
			case r.out <- frameOut{port: p.Port, frame: p.Frame}:
			case <-ctx.Done():
			}
		}
	}()
	r.t.Cleanup(func() {
		cancel()
		client.Close()
		<-done
	})
	return nil
}

func (r *reference) address() string         { return r.sw.P4Runtime() }
func (r *reference) output() <-chan frameOut { return r.out }

func (r *reference) inject(port uint32, frame []byte) error {
	if r.client == nil {
		if err := r.open(); err != nil {
			return err
		}
	}
	return r.client.Inject(port, frame, 0)
}

func TestBMv2(t *testing.T) {
	for _, name := range compiled.Names() {
		t.Run(name, func(t *testing.T) {
			conform(t, load(t, name), startBMv2(t))
		})
	}
}

func TestBMv2Trace(t *testing.T) { conformTrace(t, "univmon", startBMv2(t), 8000) }

func TestBMv2Flips(t *testing.T) { conformFlips(t, "univmon-300k", startBMv2(t), 10_000) }

const patience = 2 * time.Minute // for one step of a switch that shares its cores

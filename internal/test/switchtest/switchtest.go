// SPDX-License-Identifier: Apache-2.0

// Package switchtest creates switches for tests.
package switchtest

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/bmv2"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/dataplane"
)

// compiler compiles each program once for all switches of the tests.
var compiler softswitch.Compiler

// New returns a switch with a built-in program, which is closed when the test ends.
func New(tb testing.TB, name, program string) *softswitch.Switch {
	tb.Helper()
	p, err := compiled.Load(program)
	if err != nil {
		tb.Fatal(err)
	}
	executable, err := compiler.Compile(p.JSON)
	if err != nil {
		tb.Fatal(err)
	}
	sw := softswitch.New(softswitch.Config{Name: name})
	tb.Cleanup(sw.Close)
	if err := sw.Load(executable); err != nil {
		tb.Fatal(err)
	}
	return sw
}

// OpenDataPlane opens the packet stream of a switch whose pipeline has just been pushed, because
// BMv2 refuses streams for a moment longer. It injects a probe frame, which the switch must
// forward, by one port until the frame comes out.
func OpenDataPlane(ctx context.Context, conn grpc.ClientConnInterface, device uint64, port uint32,
	frame []byte,
) (*dataplane.Client, error) {
	for {
		c, err := dataplane.Open(ctx, conn, device)
		if err != nil {
			return nil, err
		}
		err = c.Inject(port, frame, 0)
		if err == nil {
			if _, ok := <-c.Packets(); ok {
				return c, nil
			}
			err = c.Err()
		}
		c.Close()
		if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			return nil, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// BMv2Version returns the version that the installed BMv2 reports. Without one it returns
// bmv2.ErrNotInstalled.
func BMv2Version(ctx context.Context) (string, error) {
	path, err := exec.LookPath(bmv2.Program)
	if err != nil {
		return "", bmv2.ErrNotInstalled
	}
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", bmv2.Program, err)
	}
	return strings.TrimSpace(string(out)), nil
}

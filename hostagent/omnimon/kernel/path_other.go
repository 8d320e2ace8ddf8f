// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !(386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64)

package kernel

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/role"
)

// Path is a data path in the kernel.
type Path struct{}

func errSystem() error {
	return fmt.Errorf("%w: OmniMon's eBPF programs need Linux on a little-endian processor, this is %s on %s",
		errors.ErrUnsupported, runtime.GOOS, runtime.GOARCH)
}

// Open returns an error that wraps errors.ErrUnsupported.
func Open(Config) (*Path, error) { return nil, errSystem() }

// Check returns an error that wraps errors.ErrUnsupported.
func Check(Config) ([]string, error) { return nil, errSystem() }

// Remove returns an error that wraps errors.ErrUnsupported.
func Remove(Config) error { return errSystem() }

// Role implements agent.DataPath.
func (*Path) Role() string { return wire.Role }

// Apply implements agent.DataPath.
func (*Path) Apply([]byte) error { return errSystem() }

// Since implements agent.DataPath.
func (*Path) Since() (uint64, bool) { return 0, false }

// Epoch implements agent.DataPath.
func (*Path) Epoch() uint64 { return 0 }

// Advance implements agent.DataPath.
func (*Path) Advance(uint64) bool { return false }

// Schedule does nothing.
func (*Path) Schedule(time.Time, time.Duration, time.Duration) {}

// Reset implements agent.DataPath.
func (*Path) Reset(uint64) error { return errSystem() }

// Seal implements agent.DataPath.
func (*Path) Seal(uint64) (role.Report, error) { return nil, errSystem() }

// Close implements agent.DataPath.
func (*Path) Close() error { return nil }

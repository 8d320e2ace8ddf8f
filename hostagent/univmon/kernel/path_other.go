// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !(386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64)

package kernel

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/netsketch/netsketch/hostagent/agent"
)

// Path is a data path in the kernel.
type Path struct{ *agent.RolePath }

func errSystem() error {
	return fmt.Errorf("%w: UnivMon's eBPF programs need Linux on a little-endian processor, this is %s on %s",
		errors.ErrUnsupported, runtime.GOOS, runtime.GOARCH)
}

// Open returns an error that wraps errors.ErrUnsupported.
func Open(Config) (*Path, error) { return nil, errSystem() }

// Check returns an error that wraps errors.ErrUnsupported.
func Check(Config) ([]string, error) { return nil, errSystem() }

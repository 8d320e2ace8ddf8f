// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !(386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64)

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
)

func errSystem() error {
	return fmt.Errorf("%w: eBPF programs need Linux on a little-endian processor, this is %s on %s",
		errors.ErrUnsupported, runtime.GOOS, runtime.GOARCH)
}

// CheckPin returns an error that wraps errors.ErrUnsupported.
func CheckPin(string) error { return errSystem() }

// Lock returns an error that wraps errors.ErrUnsupported.
func Lock(string) (func(), error) { return nil, errSystem() }

// Program is a program of an agent at an interface.
type Program struct{}

// Programs finds nothing.
func Programs([]net.Interface) []Program { return nil }

// Holders finds nothing.
func Holders([]Program) []int { return nil }

// PinDirs finds nothing.
func PinDirs([]Program, []string) []string { return nil }

// Remove finds nothing.
func Remove(context.Context, []string, []net.Interface, []string) ([]string, error) { return nil, nil }

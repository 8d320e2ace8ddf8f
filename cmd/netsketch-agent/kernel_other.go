// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !(386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64)

package main

import "github.com/netsketch/netsketch/hostagent/command"

// kernels has no data path: eBPF programs need Linux on a little-endian processor.
var kernels map[string]*command.Kernel

// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
)

// Check returns what would make the data path fail on this host, and warnings. It loads the program
// and removes it; packets are not changed.
func Check(cfg Config) (warnings []string, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	needs := hostkernel.Needs{
		Maps: []ebpf.MapType{ebpf.Hash, ebpf.PerCPUHash, ebpf.PerCPUArray, ebpf.ArrayOfMaps},
		Helpers: []hostkernel.Helper{{Program: ebpf.XDP, Func: asm.FnXdpAdjustHead, Since: "4.10"},
			{Program: ebpf.XDP, Func: asm.FnXdpLoadBytes, Since: "5.18"},
			{Program: ebpf.XDP, Func: asm.FnXdpStoreBytes, Since: "5.18"},
			{Program: ebpf.XDP, Func: asm.FnXdpGetBuffLen, Since: "5.18"}},
		Pin: cfg.Pin, Interface: cfg.Interface,
		Load: func() error {
			t, err := load(&wire.Settings{Interval: 1, Flows: 1 << 10, Latencies: 1 << 10, Heavy: 1, Inflation: 1})
			if err == nil {
				t.close()
			}
			return err
		},
	}
	return needs.Check()
}

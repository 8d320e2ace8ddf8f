// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
)

// helpers are those of the programs that not every kernel since Linux 4.9 has. The newest of them,
// with XDP on split frames, need Linux 5.18.
var helpers = []hostkernel.Helper{{Program: ebpf.XDP, Func: asm.FnXdpAdjustHead, Since: "4.10"},
	{Program: ebpf.XDP, Func: asm.FnJiffies64, Since: "5.6"},
	{Program: ebpf.XDP, Func: asm.FnKtimeGetCoarseNs, Since: "5.11"},
	{Program: ebpf.XDP, Func: asm.FnXdpLoadBytes, Since: "5.18"},
	{Program: ebpf.XDP, Func: asm.FnXdpStoreBytes, Since: "5.18"},
	{Program: ebpf.XDP, Func: asm.FnXdpGetBuffLen, Since: "5.18"}}

// mapTypes are those that not every kernel with XDP and arrays has.
var mapTypes = []ebpf.MapType{ebpf.Hash, ebpf.PerCPUArray, ebpf.ArrayOfMaps}

// Check returns what would make the data path fail on this host, and warnings. It loads the
// programs and removes them; packets are not changed.
func Check(cfg Config) (warnings []string, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	needs := hostkernel.Needs{Maps: mapTypes, Helpers: helpers, Pin: cfg.Pin, Interface: cfg.Interface,
		Load: func() error {
			t, err := load("")
			if err == nil {
				t.close()
			}
			return err
		}}
	return needs.Check()
}

// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/univmon/wire"
)

// Check returns what would make the data path fail on this host, and warnings. It loads the
// programs, attaches them and removes them.
func Check(cfg Config) (warnings []string, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	needs := hostkernel.Needs{
		Maps:      []ebpf.MapType{ebpf.PerCPUArray, ebpf.ArrayOfMaps},
		Helpers:   []hostkernel.Helper{{Program: ebpf.SchedCLS, Func: asm.FnSkbLoadBytes, Since: "4.5"}},
		Interface: cfg.Interface,
		Load: func() error {
			t, err := load(&wire.Settings{Packets: wire.Packets{Sent: true, Received: true}, Sketches: wire.Sketches()})
			if err != nil {
				return err
			}
			return errors.Join(t.attach(cfg.Interface), t.close())
		},
	}
	return needs.Check()
}

// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"net"

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
	if err := hostkernel.CheckCapabilities(); err != nil {
		return nil, err // the others would only say the same
	}
	errs := []error{hostkernel.CheckFeatures([]ebpf.MapType{ebpf.PerCPUArray, ebpf.ArrayOfMaps},
		[]hostkernel.Helper{{Program: ebpf.SchedCLS, Func: asm.FnSkbLoadBytes, Since: "4.5"}})}
	t, err := load(&wire.Settings{Packets: wire.Packets{Sent: true, Received: true}, Sketches: wire.Sketches()})
	if errs = append(errs, err); err == nil {
		errs = append(errs, t.attach(cfg.Interface), t.close())
	}
	if cfg.Interface != "" {
		i, err := net.InterfaceByName(cfg.Interface)
		if errs = append(errs, err); err == nil && i.Flags&net.FlagUp == 0 {
			warnings = append(warnings, fmt.Sprintf("interface %s is down", i.Name))
		}
	}
	return warnings, errors.Join(errs...)
}

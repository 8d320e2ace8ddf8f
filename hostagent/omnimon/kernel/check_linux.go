// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
)

// Check returns what would make the data path fail on this host, and warnings. It loads the
// programs and removes them; packets are not changed.
func Check(cfg Config) (warnings []string, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	var errs []error
	if cfg.Pin != "" {
		errs = append(errs, checkPin(cfg.Pin))
	}
	if err := checkCapabilities(); err != nil {
		return nil, errors.Join(append(errs, err)...) // the others would only say the same
	}
	errs = append(errs, checkKernel(), checkPrograms())
	if cfg.Interface != "" {
		more, err := checkInterface(&cfg)
		warnings, errs = append(warnings, more...), append(errs, err)
	}
	return warnings, errors.Join(errs...)
}

// capabilities that suffice, by their numbers in linux/capability.h. Without CAP_PERFMON the
// verifier refuses variable offsets into packets.
var capabilities = []struct {
	name string
	bit  uint
}{{"CAP_BPF", 39}, {"CAP_NET_ADMIN", 12}, {"CAP_PERFMON", 38}}

func checkCapabilities() error {
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		value, ok := strings.CutPrefix(line, "CapEff:")
		if !ok {
			continue
		}
		set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			return err
		}
		var missing []string
		for _, c := range capabilities {
			if set>>c.bit&1 == 0 {
				missing = append(missing, c.name)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("missing capabilities: %s", strings.Join(missing, ", "))
		}
	}
	return nil
}

// checkKernel names the features that the kernel lacks.
func checkKernel() error {
	var missing []string
	need := func(name string, err error) {
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s (%v)", name, err))
		}
	}
	need("instructions of version 3, Linux 5.12", features.HaveV3ISA())
	need("arrays that processes map, Linux 5.5", features.HaveMapFlag(features.BPF_F_MMAPABLE))
	for _, m := range []ebpf.MapType{ebpf.Hash, ebpf.PerCPUArray, ebpf.Queue, ebpf.Stack, ebpf.ArrayOfMaps, ebpf.RingBuf} {
		need("map type "+m.String(), features.HaveMapType(m))
	}
	for _, h := range []struct {
		program ebpf.ProgramType
		helper  asm.BuiltinFunc
		since   string
	}{
		{ebpf.SchedCLS, asm.FnSkbChangeHead, "5.8"}, {ebpf.SchedCLS, asm.FnLoop, "5.17"},
		{ebpf.SchedCLS, asm.FnKtimeGetCoarseNs, "5.11"}, {ebpf.XDP, asm.FnXdpAdjustHead, "4.10"},
		{ebpf.XDP, asm.FnXdpLoadBytes, "5.18"}, {ebpf.XDP, asm.FnXdpGetBuffLen, "5.18"},
	} {
		need(fmt.Sprintf("%v in %v programs, Linux %s", h.helper, h.program, h.since),
			features.HaveProgramHelper(h.program, h.helper))
	}
	if len(missing) > 0 {
		return fmt.Errorf("the kernel lacks %s", strings.Join(missing, "; "))
	}
	return nil
}

// checkPrograms loads the programs with small maps.
func checkPrograms() error {
	s := &wire.Settings{EtherType: header.DefaultEtherType, Slots: 64, SlotsPerFlow: header.MaxSlots, Shares: 1,
		Hosts: [][]netip.Addr{nil}, Flows: 64, IngressSlots: 64, IdleEpochs: 1,
		Extremes: make([]wire.Extreme, header.MaxDifferences)}
	for i := range s.Extremes {
		s.Extremes[i].Field = wire.FieldLength
	}
	_, share, err := omnimon.Check(s)
	if err != nil {
		return err
	}
	t, err := load(s, share, 4, 1500)
	if err != nil {
		return err
	}
	t.close()
	return nil
}

// checkPin returns why a directory cannot hold pins.
func checkPin(dir string) error {
	var fs unix.Statfs_t
	at := dir
	for {
		err := unix.Statfs(at, &fs)
		if err == nil {
			break
		}
		up := at[:max(strings.LastIndexByte(at, '/'), 0)]
		if !errors.Is(err, unix.ENOENT) || up == "" {
			return fmt.Errorf("pin %s: %w", dir, err)
		}
		at = up
	}
	switch {
	case uint32(fs.Type) != unix.BPF_FS_MAGIC:
		return fmt.Errorf("pin %s: not in a BPF file system: mount -t bpf bpf /sys/fs/bpf", dir)
	case strings.Contains(dir[len(at):], "."):
		return fmt.Errorf("pin %s: names in a BPF file system have no dots", dir)
	}
	return nil
}

func checkInterface(cfg *Config) (warnings []string, err error) {
	i, err := net.InterfaceByName(cfg.Interface)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", cfg.Interface, err)
	}
	if i.Flags&net.FlagUp == 0 {
		warnings = append(warnings, fmt.Sprintf("interface %s is down", i.Name))
	}
	if i.MTU <= 1500 {
		smallest := header.Layout{Slots: 1}.Size()
		warnings = append(warnings, fmt.Sprintf("interface %s has an MTU of %d bytes, and a header has %d to %d: "+
			"longer packets get no header and make epochs inexact. Increase the MTU (ip link set %s mtu %d) "+
			"and keep that of its routes (ip route change … mtu %d)",
			i.Name, i.MTU, smallest, maxHeader, i.Name, i.MTU+maxHeader, i.MTU))
	}
	found, err := offloads(i.Name)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		err = nil
	case err == nil && len(found) > 0 && cfg.DisableOffloads:
		warnings = append(warnings,
			fmt.Sprintf("interface %s: the agent will turn off %s", i.Name, strings.Join(found, ", ")))
	case err == nil && len(found) > 0:
		err = offloadError(i.Name, found)
	}
	return warnings, err
}

// maxHeader is the largest size of a header in bytes.
var maxHeader = header.Layout{Slots: header.MaxSlots, Differences: header.MaxDifferences}.Size()

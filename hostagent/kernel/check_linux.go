// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/internal/rawlink"
)

// Requirements are the needs of a role's data path on a host.
type Requirements struct {
	// Spec returns the programs and maps: the kernel must have their types, and the functions that
	// the programs call.
	Spec func() (*ebpf.CollectionSpec, error)
	// Load loads the programs and removes them.
	Load func() error
	// Interface returns what else the interface lacks, and warnings; nil: nothing.
	Interface func(*net.Interface) (warnings []string, err error)
}

// Check returns everything that a host lacks, and warnings. Packets are not changed.
func (c *Config) Check(r Requirements) (warnings []string, err error) {
	var errs []error
	if c.Pin != "" {
		errs = append(errs, CheckPin(c.Pin))
	}
	if err := checkCapabilities(); err != nil {
		return nil, errors.Join(append(errs, err)...) // further errors would only repeat this one
	}
	spec, err := r.Spec()
	if err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	errs = append(errs, checkFeatures(spec), r.Load())
	if c.Interface == "" {
		return nil, errors.Join(errs...)
	}
	i, err := net.InterfaceByName(c.Interface)
	if err != nil {
		return nil, errors.Join(append(errs, fmt.Errorf("interface %s: %w", c.Interface, err))...)
	}
	if i.Flags&net.FlagUp == 0 {
		warnings = append(warnings, fmt.Sprintf("interface %s is down", i.Name))
	}
	if err := rawlink.CheckEthernet(i.Name); err != nil {
		errs = append(errs, fmt.Errorf("interface %s: %w", i.Name, err))
	}
	if r.Interface != nil {
		more, err := r.Interface(i)
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

// checkCapabilities names the capabilities that this process lacks.
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

// since are the versions of Linux that have functions which not every kernel with XDP has.
var since = map[asm.BuiltinFunc]string{asm.FnXdpAdjustHead: "4.10", asm.FnSkbAdjustRoom: "4.13", asm.FnJiffies64: "5.6",
	asm.FnSkbChangeHead: "5.8", asm.FnKtimeGetCoarseNs: "5.11", asm.FnLoop: "5.17", asm.FnXdpLoadBytes: "5.18",
	asm.FnXdpStoreBytes: "5.18", asm.FnXdpGetBuffLen: "5.18"}

// checkFeatures names the types of maps and the functions that the kernel lacks for programs, and
// features that every data path needs.
func checkFeatures(spec *ebpf.CollectionSpec) error {
	missing := map[string]bool{}
	need := func(err error, format string, args ...any) {
		if err != nil {
			missing[fmt.Sprintf(format+" (%v)", append(args, err)...)] = true
		}
	}
	need(features.HaveV3ISA(), "instructions of version 3, Linux 5.12")
	need(features.HaveMapFlag(features.BPF_F_MMAPABLE), "arrays that processes map, Linux 5.5")
	need(features.HaveMapType(ebpf.ArrayOfMaps), "map type %v", ebpf.ArrayOfMaps) // Barrier
	for _, m := range spec.Maps {
		need(features.HaveMapType(m.Type), "map type %v", m.Type)
	}
	for _, p := range spec.Programs {
		for _, i := range p.Instructions {
			if i.IsBuiltinCall() {
				f := asm.BuiltinFunc(i.Constant)
				need(features.HaveProgramHelper(p.Type, f), "%v in %v programs, Linux %s", f, p.Type, cmp.Or(since[f], "?"))
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the kernel lacks %s", strings.Join(slices.Sorted(maps.Keys(missing)), "; "))
	}
	return nil
}

// CheckPin returns why a directory cannot hold pins.
func CheckPin(dir string) error {
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

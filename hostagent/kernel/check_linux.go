// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// Needs are what a data path needs on a host.
type Needs struct {
	// Maps are the types of maps and Helpers the functions of the programs that not every kernel has.
	Maps    []ebpf.MapType
	Helpers []Helper
	// Pin is the directory of pins; "": none.
	Pin string
	// Interface is the name of the interface; "": none.
	Interface string
	// Load loads the programs and removes them.
	Load func() error
	// Attach returns what else the interface lacks, and warnings; nil: nothing.
	Attach func(*net.Interface) (warnings []string, err error)
}

// Check returns what a host lacks, all of it, and warnings. Packets are not changed.
func (n *Needs) Check() (warnings []string, err error) {
	var errs []error
	if n.Pin != "" {
		errs = append(errs, CheckPin(n.Pin))
	}
	if err := checkCapabilities(); err != nil {
		return nil, errors.Join(append(errs, err)...) // the others would only say the same
	}
	errs = append(errs, checkFeatures(n.Maps, n.Helpers), n.Load())
	if n.Interface == "" {
		return nil, errors.Join(errs...)
	}
	i, err := net.InterfaceByName(n.Interface)
	if err != nil {
		return nil, errors.Join(append(errs, fmt.Errorf("interface %s: %w", n.Interface, err))...)
	}
	if i.Flags&net.FlagUp == 0 {
		warnings = append(warnings, fmt.Sprintf("interface %s is down", i.Name))
	}
	if n.Attach != nil {
		more, err := n.Attach(i)
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

// Helper is a function of the kernel that a type of programs calls.
type Helper struct {
	Program ebpf.ProgramType
	Func    asm.BuiltinFunc
	Since   string // version of Linux
}

// checkFeatures names the types of maps and the helpers that the kernel lacks, and other features
// that every data path needs.
func checkFeatures(maps []ebpf.MapType, helpers []Helper) error {
	var missing []string
	need := func(name string, err error) {
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s (%v)", name, err))
		}
	}
	need("instructions of version 3, Linux 5.12", features.HaveV3ISA())
	need("arrays that processes map, Linux 5.5", features.HaveMapFlag(features.BPF_F_MMAPABLE))
	for _, m := range maps {
		need("map type "+m.String(), features.HaveMapType(m))
	}
	for _, h := range helpers {
		need(fmt.Sprintf("%v in %v programs, Linux %s", h.Func, h.Program, h.Since),
			features.HaveProgramHelper(h.Program, h.Func))
	}
	if len(missing) > 0 {
		return fmt.Errorf("the kernel lacks %s", strings.Join(missing, "; "))
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

// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// capabilities that suffice, by their numbers in linux/capability.h. Without CAP_PERFMON the
// verifier refuses variable offsets into packets.
var capabilities = []struct {
	name string
	bit  uint
}{{"CAP_BPF", 39}, {"CAP_NET_ADMIN", 12}, {"CAP_PERFMON", 38}}

// CheckCapabilities names the capabilities that this process lacks.
func CheckCapabilities() error {
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

// CheckFeatures names the types of maps and the helpers that the kernel lacks, and other features
// that every data path needs.
func CheckFeatures(maps []ebpf.MapType, helpers []Helper) error {
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

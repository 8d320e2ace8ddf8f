// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// ours begins the name of every program of an agent.
const ours = "nsketch_"

// maxName is the length of the names of programs. With one more byte, the most that the kernel has
// room for, package ebpf takes a name for a truncated one, and returns the name of the function.
const maxName = 14

// Name gives the programs of a role the name by which the kernel lists them, and Programs finds
// them.
func Name(spec *ebpf.CollectionSpec, role string) {
	for _, p := range spec.Programs {
		p.Name = nameOf(role)
	}
}

// nameOf returns the name of a role's programs in the kernel, such as nsketch_omnimo.
func nameOf(role string) string { return ours + role[:min(len(role), maxName-len(ours))] }

// front are the roles whose programs run before other programs of an interface (Hook.First), in
// their order. UnivMon counts packets as they are on the wire. SketchINT and LightGuardian remove
// the headers that switches inserted before OmniMon compares a packet with the packet that was
// sent.
var front = []string{"univmon", "sketchint", "lightguardian", "omnimon"}

// place returns how many roles of front run before a role.
func place(role string) int {
	if i := slices.Index(front, role); i >= 0 {
		return i
	}
	return len(front)
}

// anchor returns the place of a new program among the TCX programs of an interface.
func (h *Hook) anchor(role string, index int) link.Anchor {
	if !h.First {
		return link.Tail()
	}
	all, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: h.At})
	if err != nil {
		return link.Head() // attaching fails, too
	}
	for _, p := range slices.Backward(all.Programs) {
		name := programName(p.ID)
		if slices.ContainsFunc(front[:place(role)], func(r string) bool { return nameOf(r) == name }) {
			return link.AfterProgramByID(p.ID)
		}
	}
	return link.Head()
}

// Program is a program of an agent at an interface.
type Program struct {
	id          ebpf.ProgramID
	link        link.ID // 0 for a filter at clsact
	name, where string
	egress      bool
	detach      func() error
}

// Programs returns the readable programs of agents at interfaces.
func Programs(interfaces []net.Interface) (found []Program) {
	for _, i := range interfaces {
		for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			all, err := link.QueryPrograms(link.QueryOptions{Target: i.Index, Attach: at})
			if err != nil {
				continue // a kernel without TCX
			}
			for _, a := range all.Programs {
				if id, ok := a.LinkID(); ok {
					found = appendLink(found, id, a.ID, i.Name, at == ebpf.AttachTCXEgress)
				}
			}
		}
		for _, parent := range []int64{parentIngress, parentEgress} {
			for _, f := range filtersAt(i.Index, parent) {
				f.where = i.Name
				found = append(found, f)
			}
		}
		if id := xdpAt(i.Index); id != 0 {
			found = appendLink(found, linkOf(id), id, i.Name, false)
		}
	}
	return found
}

// appendLink appends a program that a link attaches, if it is one of an agent.
func appendLink(found []Program, at link.ID, id ebpf.ProgramID, where string, egress bool) []Program {
	name := programName(id)
	if at == 0 || !strings.HasPrefix(name, ours) {
		return found
	}
	return append(found, Program{id: id, link: at, name: name, where: where, egress: egress, detach: func() error {
		l, err := link.NewFromID(at)
		if errors.Is(err, os.ErrNotExist) {
			return nil // the process has ended
		}
		if err != nil {
			return err
		}
		return errors.Join(detachLink(l), l.Close())
	}})
}

// programName returns the name of a program in the kernel, "" if it has ended.
func programName(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}

// linkOf returns the link of a program at XDP, 0 if it has none.
func linkOf(id ebpf.ProgramID) link.ID {
	all := new(link.Iterator)
	defer all.Close()
	for all.Next() {
		if info, err := all.Link.Info(); err == nil && info.XDP() != nil && info.Program == id {
			return all.ID
		}
	}
	return 0
}

// xdpAt returns the program at XDP of an interface, 0 if none is attached.
func xdpAt(index int) ebpf.ProgramID {
	const iflaXDP, first, last = 43, 4, 7 // IFLA_XDP_PROG_ID and the attributes of the modes
	var id ebpf.ProgramID
	body := binary.NativeEndian.AppendUint32(make([]byte, 4, unix.SizeofIfInfomsg), uint32(index))
	_ = netlinkRead(unix.RTM_GETLINK, 0, append(body, make([]byte, 8)...), func(m []byte) { // 0 after an error
		for kind, value := range attributes(attributes(m[unix.SizeofIfInfomsg:])[iflaXDP]) {
			if kind >= first && kind <= last && len(value) == 4 {
				id = ebpf.ProgramID(binary.NativeEndian.Uint32(value))
			}
		}
	})
	return id
}

// Holders returns the agents that refer to programs: processes that run this executable or
// netsketch's commands. Other processes that look at programs of the kernel are ignored.
func Holders(programs []Program) (pids []int) {
	names := []string{executable(os.Getpid()), "netsketch", "netsketch-agent"}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if pid != os.Getpid() && slices.Contains(names, executable(pid)) && holds(dir, programs) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// holds reports whether a process, by its directory of /proc, refers to one of the programs.
func holds(dir string, programs []Program) bool {
	files, _ := filepath.Glob(dir + "/fdinfo/*") // the pattern is valid
	return slices.ContainsFunc(files, func(file string) bool {
		text, _ := os.ReadFile(file) // empty if the file was closed in the meantime
		for line := range strings.Lines(string(text)) {
			value, ok := strings.CutPrefix(line, "prog_id:")
			id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			if ok && err == nil {
				return slices.ContainsFunc(programs, func(p Program) bool { return uint64(p.id) == id })
			}
		}
		return false
	})
}

// executable returns the base name of a process's executable, also if the file was replaced or
// removed since.
func executable(pid int) string {
	file, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // a process that has ended has no executable
	return filepath.Base(strings.TrimSuffix(file, " (deleted)"))
}

// PinDirs returns the directories of all BPF file systems in which agents with these roles pinned
// programs.
func PinDirs(programs []Program, roles []string) (dirs []string) {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		// 36 35 98:0 / /sys/fs/bpf rw,noatime shared:1 - bpf bpf rw,mode=700
		f := strings.Fields(lines.Text())
		if i := slices.Index(f, "-"); i < 0 || len(f) < i+2 || f[i+1] != "bpf" {
			continue
		}
		_ = filepath.WalkDir(f[4], func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && slices.Contains(roles, d.Name()) && pinned(path, programs) &&
				!slices.Contains(dirs, filepath.Dir(path)) {
				dirs = append(dirs, filepath.Dir(path))
			}
			return nil // no agent made a directory that it cannot read
		})
	}
	return dirs
}

// pinned reports whether a directory has the link of one of the programs.
func pinned(dir string, programs []Program) bool {
	files, _ := os.ReadDir(dir) // empty after an error
	return slices.ContainsFunc(files, func(f os.DirEntry) bool {
		l, err := link.LoadPinnedLink(filepath.Join(dir, f.Name()), nil)
		if err != nil {
			return false
		}
		defer l.Close()
		info, err := l.Info()
		return err == nil && slices.ContainsFunc(programs, func(p Program) bool { return p.link == info.ID })
	})
}

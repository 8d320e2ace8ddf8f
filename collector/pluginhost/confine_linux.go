// SPDX-License-Identifier: Apache-2.0

// Limits of a plugin process on Linux: a memory limit, and an end that includes its descendants.

package pluginhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endGrace bounds the wait for killed descendants. Only a process in an uninterruptible system
// call takes noticeable time to end.
const endGrace = 2 * time.Second

// addressSpace is added to a memory limit for RLIMIT_AS, which bounds shared memory: language
// runtimes reserve address space that they never use (Go 1.2 GiB, V8 and the JVM tens of GiB).
// RLIMIT_DATA, which counts writable private memory only, is the exact limit.
const addressSpace = 64 << 30

// confiner confines the plugins of a host.
type confiner struct {
	cgroup string // delegated cgroup in which plugins get cgroups of their own, or ""
}

// newConfiner makes this process adopt orphaned descendants of plugins. The error says why plugins
// get no cgroups; the confiner can be used nevertheless.
func newConfiner() (confiner, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return confiner{}, fmt.Errorf("adopt orphans of plugins: %w", err)
	}
	base, err := delegatedCgroup()
	return confiner{base}, err
}

// sweep ends the processes that the plugins of a dead host left. dir is that host's socket
// directory.
func (c confiner) sweep(dir string) {
	endFamily(func(p *processInfo) bool { return filepath.Dir(socketDirOf(p.environment())) == dir })
	if c.cgroup == "" {
		return
	}
	paths, _ := filepath.Glob(filepath.Join(c.cgroup, filepath.Base(dir)+"-*")) // fails for bad patterns only
	for _, path := range paths {
		(&cgroup{path: path}).end()
	}
}

// confine returns the confinement of a process whose socket is in socketDir. A limit of 0 means no
// limit.
func (c confiner) confine(socketDir string, limit int64) *confinement {
	return &confinement{base: c.cgroup, socketDir: socketDir, limit: limit}
}

// confinement confines one process.
type confinement struct {
	base      string // parent of the process's cgroup; "" if it gets none
	socketDir string
	limit     int64
	group     *cgroup // nil without a cgroup
	pid       int
}

// start starts the process with f, which returns the process number. The process gets the
// parent-death signal and a session of its own, so that a terminal's Ctrl-C reaches only the
// collector, and descendants can be found.
func (c *confinement) start(a *syscall.SysProcAttr, f func() (int, error)) (err error) {
	a.Setsid, a.Pdeathsig = true, syscall.SIGKILL
	if c.limit > 0 && c.base != "" {
		name := filepath.Base(filepath.Dir(c.socketDir)) + "-" + filepath.Base(c.socketDir)
		if c.group, err = newCgroup(filepath.Join(c.base, name), c.limit); err != nil {
			return fmt.Errorf("cgroup of a plugin: %w", err)
		}
		a.UseCgroupFD, a.CgroupFD = true, int(c.group.dir.Fd())
	}
	family.Lock()
	defer family.Unlock()
	if c.pid, err = f(); err != nil {
		c.group.end()
		return err
	}
	family.plugins[c.pid] = c.socketDir
	if c.method() != MemoryRlimit {
		return nil
	}
	return errors.Join(
		lower(c.pid, unix.RLIMIT_DATA, uint64(c.limit)), lower(c.pid, unix.RLIMIT_AS, uint64(c.limit)+addressSpace))
}

// lower lowers a resource limit of a process to limit.
func lower(pid, resource int, limit uint64) error {
	var now unix.Rlimit
	if err := unix.Prlimit(pid, resource, nil, &now); err != nil {
		return fmt.Errorf("read a resource limit of process %d: %w", pid, err)
	}
	limit = min(limit, now.Max)
	if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: limit, Max: limit}, nil); err != nil {
		return fmt.Errorf("limit the memory of process %d: %w", pid, err)
	}
	return nil
}

// method returns what limits the memory.
func (c *confinement) method() MemoryMethod {
	switch {
	case c.limit == 0:
		return MemoryUnlimited
	case c.group != nil:
		return MemoryCgroup
	}
	return MemoryRlimit
}

// end ends all descendants of the process, which must have ended and not be reaped yet. It reports
// whether the kernel killed a process of the cgroup for exceeding the memory limit, and which
// descendants did not end.
func (c *confinement) end() (outOfMemory bool, left []int) {
	outOfMemory = c.group.outOfMemory()
	family.Lock()
	family.plugins[c.pid] = ""
	family.Unlock()
	left = endFamily((*processInfo).adopted)
	c.group.end()
	return outOfMemory, left
}

// release is called when the process has been reaped and its number may be reused.
func (c *confinement) release() {
	family.Lock()
	defer family.Unlock()
	if family.plugins[c.pid] == "" {
		delete(family.plugins, c.pid)
	}
}

// cgroup is the cgroup of one plugin process. A nil cgroup has no processes.
type cgroup struct {
	path string
	dir  *os.File
}

// newCgroup makes a cgroup with a memory limit. If the limit is exceeded, the kernel kills all
// processes of the cgroup.
func newCgroup(path string, limit int64) (*cgroup, error) {
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, err
	}
	g := &cgroup{path: path}
	for _, s := range []struct{ file, value string }{
		{"memory.max", fmt.Sprint(limit)}, {"memory.oom.group", "1"}, {"memory.swap.max", "0"},
	} {
		err := os.WriteFile(filepath.Join(path, s.file), []byte(s.value), 0o600)
		// kernels without swap lack this file
		if err != nil && !(s.file == "memory.swap.max" && errors.Is(err, fs.ErrNotExist)) {
			g.end()
			return nil, err
		}
	}
	var err error
	if g.dir, err = os.Open(path); err != nil {
		g.end()
		return nil, err
	}
	return g, nil
}

// outOfMemory reports whether the kernel killed a process because of the limit.
func (g *cgroup) outOfMemory() bool {
	if g == nil {
		return false
	}
	events, _ := os.ReadFile(filepath.Join(g.path, "memory.events")) // without the file, no kill is counted
	for line := range strings.Lines(string(events)) {
		if name, n, _ := strings.Cut(strings.TrimSpace(line), " "); name == "oom_kill" && n != "0" {
			return true
		}
	}
	return false
}

// end kills all processes of the cgroup and removes it. If its processes do not end in time, the
// next sweep removes the cgroup.
func (g *cgroup) end() {
	if g == nil {
		return
	}
	if g.dir != nil {
		g.dir.Close()
	}
	// the file is missing before Linux 5.14
	_ = os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0o600)
	for limit := time.Now().Add(endGrace); ; time.Sleep(time.Millisecond) {
		if err := unix.Rmdir(g.path); !errors.Is(err, unix.EBUSY) || time.Now().After(limit) {
			return
		}
	}
}

// delegatedCgroup returns the cgroup next to the collector's own, in which plugins get their
// cgroups. It changes only the controllers of that cgroup, and only if the cgroup is delegated.
func delegatedCgroup() (string, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	path, err := cgroupPath(string(own), string(mounts))
	if err != nil {
		return "", err
	}
	base := filepath.Dir(path)
	if !delegated(base) {
		return "", fmt.Errorf("%s is not delegated; in a systemd unit, set Delegate=memory and DelegateSubgroup=collector",
			base)
	}
	return base, enableMemory(base)
}

// cgroupPath returns the directory of the process's cgroup in the unified hierarchy, from
// /proc/self/cgroup and /proc/self/mountinfo.
func cgroupPath(own, mounts string) (string, error) {
	var path string
	for line := range strings.Lines(own) {
		if after, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path = after
		}
	}
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if len(f) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		rel, err := filepath.Rel(f[3], path)
		if path == "" || err != nil || rel == "." || strings.HasPrefix(rel, "..") {
			return "", errors.New("the collector is in the root of its cgroup hierarchy")
		}
		return filepath.Join(f[4], rel), nil
	}
	return "", errors.New("no cgroup v2 hierarchy is mounted")
}

// delegated reports whether the manager of a cgroup lets its users manage it. systemd marks a
// delegated cgroup with an extended attribute.
func delegated(path string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		var value [8]byte
		if n, err := unix.Getxattr(path, name, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// enableMemory gives the child cgroups of base the memory controller.
func enableMemory(base string) error {
	const controller = "memory"
	for _, file := range []string{"cgroup.controllers", "cgroup.subtree_control"} {
		text, err := os.ReadFile(filepath.Join(base, file))
		if err != nil {
			return err
		}
		if slices.Contains(strings.Fields(string(text)), controller) {
			continue
		}
		if file == "cgroup.controllers" {
			return fmt.Errorf("%s has no memory controller", base)
		}
		return os.WriteFile(filepath.Join(base, file), []byte("+"+controller), 0o600)
	}
	return nil
}

// waitUnreaped waits until the child has ended, without reaping it. It returns false if the system
// does not support that.
func waitUnreaped(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

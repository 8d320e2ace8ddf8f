// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

// raceDetector is set if the tests and their plugins run under the race detector.
var raceDetector bool

// childrenOf returns the numbers of the processes that the plugin "orphan" started.
func childrenOf(t *testing.T, tmp string) (pids []int) {
	t.Helper()
	testkit.Until(t, "descendants of the plugin", func() bool {
		text, _ := os.ReadFile(filepath.Join(tmp, "children"))
		pids = nil
		for line := range strings.Lines(string(text)) {
			var pid int
			if _, err := fmt.Sscan(line, &pid); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		return len(pids) == 6
	})
	return pids
}

// orphans starts the plugin "orphan" and returns its descendants.
func orphans(t *testing.T, h *Host) (inst *Instance, tmp string, children []int) {
	t.Helper()
	tmp = t.TempDir()
	inst, err := h.Start(t.Context(), Spec{Path: filepath.Join(pluginDir(t, "orphan"), testPrefix+"orphan"),
		Env: []string{"TMPDIR=" + tmp}})
	if err != nil {
		t.Fatal(err)
	}
	return inst, tmp, childrenOf(t, tmp)
}

// Stopping a plugin ends all its descendants, and no descendant of another plugin.
func TestStopTakesDescendants(t *testing.T) {
	h := newHost(t, Options{})
	a, _, ofA := orphans(t, h)
	b, _, ofB := orphans(t, h)
	a.Stop(t.Context())
	for _, pid := range ofA {
		if !gone(pid) {
			t.Errorf("descendant %d is left", pid)
		}
	}
	alive := slices.DeleteFunc(slices.Clone(ofB), gone)
	if len(alive) < 5 { // a daemon without the environment of a running plugin may belong to any plugin
		t.Errorf("of another plugin's descendants %v only %v are left", ofB, alive)
	}
	b.Stop(t.Context())
	for _, pid := range ofB {
		if !gone(pid) {
			t.Errorf("descendant %d is left", pid)
		}
	}
}

// When the successor of a killed plugin runs, no descendant of the killed plugin is left.
func TestKillTakesDescendants(t *testing.T) {
	h := newHost(t, Options{})
	inst, tmp, children := orphans(t, h)
	if err := os.Remove(filepath.Join(tmp, "children")); err != nil {
		t.Fatal(err)
	}
	pid := inst.Status().PID
	if err := testkit.Signal(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "restart", func() bool { s := inst.Status(); return s.State == StateRunning && s.PID != pid })
	for _, child := range children {
		if !gone(child) {
			t.Errorf("descendant %d is left", child)
		}
	}
	if why := inst.Status().LastError; !strings.Contains(why, "killed from outside, by signal 9 (killed)") {
		t.Errorf("last error %q", why)
	}
	childrenOf(t, tmp) // children of the successor
}

// members never includes this process, its session, its ancestors or their other descendants.
func TestMembersSpareOurOwn(t *testing.T) {
	const self = 40
	all := []*processInfo{
		{pid: 1, session: 1}, {pid: 10, parent: 1, session: 10}, // init, and a login
		{pid: 20, parent: 10, session: 20}, {pid: 30, parent: 20, session: 20}, // make and go, which run this test
		{pid: self, parent: 30, session: 20}, {pid: 41, parent: self, session: 20},
		{pid: 42, parent: self, session: 42}, // a running plugin
		{pid: 50, parent: self, session: 50}, {pid: 51, parent: 50, session: 51}, {pid: 52, parent: 51, session: 50},
		{pid: 60, parent: 10, session: 60},
	}
	numbers := func(belongs func(*processInfo) bool) (pids []int) {
		for _, p := range members(all, self, belongs) {
			pids = append(pids, p.pid)
		}
		return pids
	}
	if got := numbers(func(p *processInfo) bool { return p.pid == 50 }); !slices.Equal(got, []int{50, 51, 52}) {
		t.Errorf("an orphan and its descendants are %v", got)
	}
	if got := numbers(func(p *processInfo) bool { return p.pid <= 41 }); len(got) > 0 {
		t.Errorf("%v belong to a plugin", got)
	}
	if got := numbers(func(*processInfo) bool { return true }); !slices.Equal(got, []int{42, 50, 51, 52, 60}) {
		t.Errorf("if all belonged, %v would", got)
	}
	all = all[:3]
	if got := numbers(func(*processInfo) bool { return true }); len(got) > 0 {
		t.Errorf("in a table without this process, %v belong to a plugin", got)
	}
}

// A sweep ends processes that have the socket directory of a dead host in their environment, but
// spares this session: a shell may have the variable for another reason.
func TestSweepSparesThisSession(t *testing.T) {
	const dir = "/tmp/nsp-of-a-dead-host"
	begin := func(setsid bool) (*exec.Cmd, chan error) {
		cmd := exec.Command("/bin/sleep", "300")
		cmd.Env = []string{"PLUGIN_UNIX_SOCKET_DIR=" + dir + "/plugin-dir1"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: setsid}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return cmd, ended
	}
	ours, oursEnded := begin(false)
	_, theirsEnded := begin(true)
	confiner{}.sweep(dir)
	<-theirsEnded
	select {
	case err := <-oursEnded:
		t.Errorf("process %d of this session was ended: %v", ours.Process.Pid, err)
	default:
	}
}

// Orphans that end by themselves are reaped while the plugin runs. Other children's exit statuses
// reach the goroutines that wait for them.
func TestOrphansAreReaped(t *testing.T) {
	h := newHost(t, Options{})
	inst := start(t, h, "churn")
	for n := range 20 {
		if n%5 == 0 {
			if err := inst.Configure(t.Context(), []byte(fmt.Sprintf(`{"greet":"hello %d"}`, n)), inst.network); err != nil {
				t.Fatal(err)
			}
		}
		var exit *exec.ExitError
		if err := exec.Command("/bin/sh", "-c", "exit 7").Run(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Fatalf("another child: %v, want exit status 7", err)
		}
	}
	testkit.Until(t, "no zombie among the adopted processes", func() bool {
		for p := range processes() {
			family.Lock()
			adopted := p.zombie && p.adopted()
			family.Unlock()
			if adopted {
				return false
			}
		}
		return true
	})
	if status := inst.Status(); status.State != StateRunning || status.Restarts != 0 {
		t.Errorf("status %+v", status)
	}
}

// A plugin that exceeds its memory limit loses one epoch, with an error that names the limit. A
// plugin that exceeds it with garbage only loses no epoch.
func TestMemoryLimit(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector reserves more memory than the limit")
	}
	h := newHost(t, Options{})
	inst, err := h.Start(t.Context(), Spec{Path: filepath.Join(pluginDir(t, "good"), testPrefix+"good"),
		MemoryLimit: 512 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if status := inst.Status(); status.MemoryLimit != 512<<20 || status.MemoryMethod != MemoryRlimit {
		t.Errorf("status %+v", status)
	}
	if _, err := analyze(t, inst, epoch(1, "waste"), 5*time.Minute); err != nil {
		t.Errorf("2 GiB of garbage: %v", err)
	}
	_, err = analyze(t, inst, epoch(2, "allocate"), 5*time.Minute)
	for _, want := range []error{ErrCrashed, ErrOutOfMemory} {
		if !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
	if want := "it exceeded its memory limit of 512 MiB (RLIMIT)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	if _, err := analyze(t, inst, epoch(3, ""), time.Minute); err != nil {
		t.Errorf("the next epoch: %v", err)
	}
	if status := inst.Status(); status.OutOfMemoryKills != 1 || status.Restarts != 1 {
		t.Errorf("status %+v", status)
	}
}

// fakeCgroup makes a directory look like a delegated cgroup.
func fakeCgroup(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestEnableMemory(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		err   string
		want  string // contents of subtree_control
	}{
		"no controller": {map[string]string{"cgroup.controllers": "cpu io", "cgroup.subtree_control": ""},
			"has no memory controller", ""},
		"enabled": {map[string]string{"cgroup.controllers": "cpu memory\n", "cgroup.subtree_control": "memory pids\n"},
			"", "memory pids\n"},
		"not yet": {map[string]string{"cgroup.controllers": "cpu memory\n", "cgroup.subtree_control": "\n"}, "",
			"+memory"},
		"no cgroup": {nil, "no such file", ""},
	} {
		dir := fakeCgroup(t, test.files)
		err := enableMemory(dir)
		if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%s: error %v, want %q", name, err, test.err)
		}
		if text, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control")); string(text) != test.want {
			t.Errorf("%s: wrote %q, want %q", name, text, test.want)
		}
	}
}

func TestCgroupPath(t *testing.T) {
	const v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	for name, test := range map[string]struct{ own, mounts, want, err string }{
		"systemd": {"0::/system.slice/netsketch.service/collector\n", v2,
			"/sys/fs/cgroup/system.slice/netsketch.service/collector", ""},
		"hybrid": {"4:memory:/user\n0::/user\n", "31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"/sys/fs/cgroup/unified/user", ""},
		"bind mount": {"0::/pod/box/collector\n", "30 23 0:26 /pod /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			"/sys/fs/cgroup/box/collector", ""},
		"root": {"0::/\n", v2, "", "in the root of its cgroup hierarchy"},
		"version 1": {"4:memory:/user\n", "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "",
			"no cgroup v2"},
		"outside":     {"0::/../other\n", v2, "/sys/fs/cgroup/other", ""},
		"not mounted": {"0::/user\n", "", "", "no cgroup v2"},
	} {
		if got, err := cgroupPath(test.own, test.mounts); got != test.want || (err != nil) != (test.err != "") ||
			err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, test.want, test.err)
		}
	}
}

// A cgroup that is not delegated is not used.
func TestDelegated(t *testing.T) {
	if dir := t.TempDir(); delegated(dir) {
		t.Errorf("%s is taken for a delegated cgroup", dir)
	}
	if base, err := delegatedCgroup(); err == nil && !delegated(base) {
		t.Errorf("cgroup %s is used and not delegated", base)
	}
}

func TestOutOfMemoryInCgroup(t *testing.T) {
	for events, want := range map[string]bool{
		"low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n": true,
		"low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\noom_group_kill 0\n": false,
		"": false,
	} {
		g := &cgroup{path: fakeCgroup(t, map[string]string{"memory.events": events})}
		if g.outOfMemory() != want {
			t.Errorf("%q: %v", events, !want)
		}
	}
}

// newCgroup writes the settings that limit a plugin's memory.
func TestCgroupSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	g, err := newCgroup(path, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	defer g.dir.Close()
	for file, want := range map[string]string{"memory.max": "1073741824", "memory.oom.group": "1"} {
		if got, err := os.ReadFile(filepath.Join(path, file)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", file, got, err, want)
		}
	}
	if _, err := newCgroup(path, 1<<30); !errors.Is(err, os.ErrExist) {
		t.Errorf("a cgroup that exists: %v", err)
	}
}

// A cgroup's end kills all of its processes, whatever session they are in.
func TestCgroupEnds(t *testing.T) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	root, err := cgroupPath("0::/netsketch-test", string(mounts))
	if err != nil {
		t.Skip(err)
	}
	g := &cgroup{path: fmt.Sprint(root, os.Getpid())}
	if err := os.Mkdir(g.path, 0o755); err != nil {
		t.Skip("the cgroup hierarchy cannot be written: ", err)
	}
	if g.dir, err = os.Open(g.path); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "(env -i setsid sleep 300 & setsid sleep 300 &) ; exec sleep 300")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(g.dir.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "three processes in the cgroup", func() bool {
		pids, _ := os.ReadFile(filepath.Join(g.path, "cgroup.procs"))
		return strings.Count(string(pids), "\n") == 3
	})
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	g.end()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process ended with %v, want a kill", err)
	}
	if _, err := os.Stat(g.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", g.path, err)
	}
}

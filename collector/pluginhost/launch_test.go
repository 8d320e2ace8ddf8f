// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

func TestStartRefusals(t *testing.T) {
	patient, h := newHost(t, Options{}), newHost(t, Options{StartTimeout: 250 * time.Millisecond})
	dir := pluginDir(t, "notplugin", "exit", "closed", "unfinished", "silent", "endless", "liar", "oldversion",
		"badname", "good")
	good := filepath.Join(dir, testPrefix+"good")
	script := filepath.Join(dir, "text")
	if err := os.WriteFile(script, []byte("just some text\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"empty": "", "crlf": "#!/bin/sh\r\nexit\r\n",
		"python": "#!/no/python3\nprint()\n",
		"other": "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xf3\x00\x01" +
			strings.Repeat("\x00", 100)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"header": 64, "segments": 1000} {
		if err := os.WriteFile(filepath.Join(dir, name), self[:size], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"core": "9|1|unix|/nosuch|grpc", "netrpc": "1|1|unix|/nosuch|netrpc"} {
		text = "#!/bin/sh\necho '" + text + "'\nsleep 100\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	noise := "#!/bin/sh\nhead -c 1100000 /dev/zero | tr '\\0' x\necho\necho '1|1|unix|/nosuch|grpc'\nsleep 100\n"
	if err := os.WriteFile(filepath.Join(dir, "noise"), []byte(noise), 0o755); err != nil {
		t.Fatal(err)
	}
	open, err := os.Create(filepath.Join(dir, "busy"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { open.Close() })
	if err := errors.Join(open.Chmod(0o755), os.WriteFile(open.Name(), []byte("#!/bin/sh\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		spec Spec
		want error
		text []string
	}{
		{"core version", Spec{Path: filepath.Join(dir, "core")}, ErrNotPlugin,
			[]string{"handshake is refused: incompatible core API version", "version: 9"}},
		{"net/rpc", Spec{Path: filepath.Join(dir, "netrpc")}, ErrNotPlugin,
			[]string{`handshake is refused: unsupported plugin protocol "netrpc"`}},
		{"noise", Spec{Path: filepath.Join(dir, "noise")}, ErrStartTimeout,
			[]string{"more than 1 MiB to its standard output"}},
		{"open to write", Spec{Path: open.Name()}, ErrNotPlugin, []string{"text file busy: a program has it open to write"}},
		{"CR LF", Spec{Path: filepath.Join(dir, "crlf")}, ErrNotPlugin, []string{"end with CR LF"}},
		{"another architecture", Spec{Path: filepath.Join(dir, "other")}, ErrNotPlugin,
			[]string{"a program for RISCV processors", runtime.GOARCH}},
		{"cut in the header", Spec{Path: filepath.Join(dir, "header")}, ErrNotPlugin, []string{"cut short or damaged"}},
		{"cut in segments", Spec{Path: filepath.Join(dir, "segments")}, ErrNotPlugin, []string{"cut short or damaged"}},
		{"empty", Spec{Path: filepath.Join(dir, "empty")}, ErrNotPlugin, []string{"the file is empty"}},
		{"no interpreter", Spec{Path: filepath.Join(dir, "python")}, ErrNotPlugin, []string{`"/no/python3" does not exist`}},
		{"not a plugin", Spec{Path: filepath.Join(dir, testPrefix+"notplugin")}, ErrNotPlugin,
			[]string{"status 0", "usage: frobnicate"}},
		{"exits at once", Spec{Path: filepath.Join(dir, testPrefix+"exit")}, ErrNotPlugin,
			[]string{"status 3", "cannot find libfoo.so"}},
		{"closes its output", Spec{Path: filepath.Join(dir, testPrefix+"closed")}, ErrNotPlugin,
			[]string{"status 7", "the license has ended"}},
		{"ends in a line", Spec{Path: filepath.Join(dir, testPrefix+"unfinished")}, ErrNotPlugin,
			[]string{"status 7", "no room on the device"}},
		{"no program", Spec{Path: script}, ErrNotPlugin, []string{script, "neither a program of this system nor a script"}},
		{"hangs at handshake", Spec{Path: filepath.Join(dir, testPrefix+"silent")}, ErrStartTimeout,
			[]string{"no handshake", "250ms"}},
		{"writes without end", Spec{Path: filepath.Join(dir, testPrefix+"endless")}, ErrStartTimeout, nil},
		{"no listener", Spec{Path: filepath.Join(dir, testPrefix+"liar")}, ErrDescription, nil},
		{"wrong protocol version", Spec{Path: filepath.Join(dir, testPrefix+"oldversion")}, ErrProtocolVersion,
			[]string{"version 99", "version 1"}},
		{"bad name", Spec{Path: filepath.Join(dir, testPrefix+"badname")}, ErrDescription, []string{`"Bad Name!"`}},
		{"wrong SHA-256", Spec{Path: good, SHA256: strings.Repeat("ab", 32)}, ErrChecksum, []string{"abab"}},
		{"missing", Spec{Path: filepath.Join(dir, "nothing")}, os.ErrNotExist, nil},
		{"schema refuses", Spec{Path: good, Config: []byte(`{"greet":"x"}`)}, ErrConfig,
			[]string{"greet:", "minLength"}},
		{"unknown key", Spec{Path: good, Config: []byte(`{"gret":"hello"}`)}, ErrConfig, []string{"gret"}},
		{"no JSON", Spec{Path: good, Config: []byte(`{`)}, ErrConfig, []string{"is not JSON"}},
		{"plugin refuses", Spec{Path: good, Config: []byte(`{"refuse":true}`)}, ErrConfig, []string{"refuse: is true"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := h
			if !errors.Is(test.want, ErrStartTimeout) {
				h = patient
			}
			inst, err := h.Start(t.Context(), test.spec)
			var startError *StartError
			if inst != nil || !errors.Is(err, test.want) || !errors.As(err, &startError) {
				t.Fatalf("error %v, want %v", err, test.want)
			}
			for _, text := range test.text {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("error %q does not say %q", err, text)
				}
			}
		})
	}
}

// TestOddEnds: whatever a plugin does with its output before it ends, the error reports the exit
// status or signal and the end of the output, without delay.
func TestOddEnds(t *testing.T) {
	h := newHost(t, Options{})
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		script string
		want   []string
	}{
		"closes stderr": {"echo no license >&2; exec 2>&-; exit 5", []string{"status 5", "no license"}},
		"closes both":   {"exec >&- 2>&-; exit 5", []string{"status 5"}},
		"kills itself":  {"echo oh >&2; kill -SEGV $$", []string{"segmentation", "oh"}},
		"aborts":        {"kill -ABRT $$", []string{"abort"}},
		"long stderr":   {"head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 9", []string{"status 9", "xxxxx"}},
		"long stdout": {"head -c 1000000 /dev/zero | tr '\\0' x; echo bad disk >&2; exit 9",
			[]string{"status 9", "bad disk"}},
		"leaves a child":    {"sleep 300 & echo child >&2; exit 4", []string{"status 4", "child"}},
		"a child writes":    {"(while :; do echo busy >&2; sleep 0.01; done) & echo oh; exit 4", []string{"status 4"}},
		"handshake, ends":   {"echo '1|1|unix|/nosuch|grpc|'; echo bye >&2; exit 6", []string{"status 6", "bye"}},
		"handshake, killed": {"echo '1|1|unix|/nosuch|grpc|'; kill -KILL $$", []string{"killed"}},
		"killed":            {"kill -KILL $$", []string{"it was killed from outside, by signal 9 (killed)"}},
		"a huge version":    {"echo '1|99999999999999999999|unix|/nosuch|grpc|'; sleep 300", []string{"speaks version"}},
		"half a handshake":  {"printf '1|1|un'; echo bye >&2; exit 6", []string{"status 6", "bye"}},
		"binary":            {"printf '\\000\\377\\033[2J\\r\\n' >&2; exit 6", []string{"status 6"}},
		"same words": {"for i in 1 2 3 4 5 6 7 8 9; do echo again >&2; done; echo last >&2; exit 6",
			[]string{"status 6", "last"}},
		"status 255": {"exit 255", []string{"status 255"}},
		"status 0":   {"exit 0", []string{"status 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+tc.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			inst, err := h.Start(t.Context(), Spec{Path: path})
			if inst != nil || err == nil {
				t.Fatalf("%v", err)
			}
			for _, text := range tc.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("error %q does not say %q", err, text)
				}
			}
			if took := time.Since(began); took > 5*time.Second || strings.ContainsAny(err.Error(), "\x00\x1b\r\n") {
				t.Errorf("after %v: %q", took, err)
			}
		})
	}
}

// TestStartTimeoutBeforeProcess: on a busy machine, the time for the start may be over before there
// is a process. The error does not blame the file.
func TestStartTimeoutBeforeProcess(t *testing.T) {
	h := newHost(t, Options{StartTimeout: time.Nanosecond})
	_, err := h.Start(t.Context(), Spec{Path: filepath.Join(pluginDir(t, "good"), testPrefix+"good")})
	if !errors.Is(err, ErrStartTimeout) || errors.Is(err, ErrNotPlugin) {
		t.Fatal(err)
	}
}

func TestStartEndsWithContext(t *testing.T) {
	h := newHost(t, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := h.Start(ctx, Spec{Path: filepath.Join(pluginDir(t, "silent"), testPrefix+"silent")})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestPinnedChecksum(t *testing.T) {
	h := newHost(t, Options{})
	path := filepath.Join(pluginDir(t, "good"), testPrefix+"good")
	sum, err := digest(path)
	if err != nil {
		t.Fatal(err)
	}
	inst, err := h.Start(t.Context(), Spec{Path: path, SHA256: strings.ToUpper(sum)})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a restart checks the file again
		if err := testkit.Signal(inst.Status().PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, "restart", func() bool {
			return inst.Status().State == StateRunning &&
				inst.Status().Restarts > 0
		})
	}
	other := filepath.Join(pluginDir(t, "rogue"), testPrefix+"rogue")
	script := fmt.Sprintf("#!/bin/sh\nexec %s\n", other)
	if err := os.WriteFile(path+".new", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	_ = testkit.Signal(inst.Status().PID, syscall.SIGKILL) // fails if the process has ended
	testkit.Until(t, "the replaced file is refused", func() bool {
		return strings.Contains(inst.Status().LastError, "pinned is ")
	})
}

func TestStdoutBeforeHandshake(t *testing.T) {
	var logs testkit.Log
	h := newHost(t, Options{Logger: logs.Logger()})
	inst := start(t, h, "chatty")
	if sums, err := analyze(t, inst, epoch(1, "lines"), time.Minute); err != nil || sums["s1"] != 6 {
		t.Fatal(sums, err)
	}
	inst.Stop(t.Context())
	for _, want := range []string{
		"welcome to my plugin", "1|2", "configured, says stdout", "and this went to standard output",
		`"{\"@message\":5}"`, "msg=nested", `level=ERROR`, `a="{\"b\":[1,2]}"`, "level is a number", "·[31mred·",
		"cut=true",
	} {
		if !strings.Contains(logs.String(), want) {
			t.Errorf("log lacks %s", want)
		}
	}
	if inst.Status().LogLinesCut < 3 {
		t.Errorf("cut lines: %d", inst.Status().LogLinesCut)
	}
	for line := range strings.Lines(logs.String()) {
		if len(line) > 3*maxLogText {
			t.Errorf("a log line of %d bytes", len(line))
		}
	}
}

// gone reports whether the process has ended, whether it was reaped or not.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !alive(pid)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

// TestHostKilled: a host that is killed leaves no plugin behind, and the next one
// removes its sockets.
func TestHostKilled(t *testing.T) {
	dir, tmp := pluginDir(t, "host", "orphan"), t.TempDir()
	sockets, err := os.MkdirTemp("", "nst")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(sockets)
	host := exec.Command(filepath.Join(dir, testPrefix+"host"))
	host.Env = append(os.Environ(), "TEST_SOCKETS="+sockets, "TMPDIR="+tmp)
	out, err := host.StdoutPipe()
	if err == nil {
		err = host.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer host.Process.Kill() //nolint:errcheck // it may have ended
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	var path string
	if _, err := fmt.Sscan(line, &pid, &path); err != nil || !alive(pid) {
		t.Fatalf("the host printed %q", line)
	}
	children := childrenOf(t, tmp)
	living := newHost(t, Options{SocketDir: sockets}) // the sweep must keep the directory of the running host
	for _, child := range children {
		if gone(child) {
			t.Errorf("descendant %d of the plugin of a living host was ended", child)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal("the sockets of a living host were removed")
	}
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = host.Wait()
	testkit.Until(t, "end of the plugin", func() bool { return gone(pid) })
	newHost(t, Options{SocketDir: sockets})
	// A descendant without this environment cannot be found once the host that adopted it is dead.
	environment := "PLUGIN_UNIX_SOCKET_DIR=" + path
	for _, child := range children {
		if text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", child)); strings.Contains(string(text), environment) {
			t.Errorf("descendant %d of the plugin of a dead host is left", child)
		}
		_ = testkit.Signal(child, syscall.SIGKILL)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", path, err)
	}
	if _, err := os.Stat(living.sockets.path); err != nil {
		t.Error("the sockets of a living host were removed")
	}
}

func TestLongSocketDirectory(t *testing.T) {
	if _, err := New(Options{SocketDir: "/" + strings.Repeat("long", 20)}); err == nil ||
		!strings.Contains(err.Error(), "set a shorter one") {
		t.Error(err)
	}
}

// Hosts that start at the same time do not remove each other's socket directories.
func TestSocketDirsOfManyHosts(t *testing.T) {
	parent, err := os.MkdirTemp("", "nst")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(parent)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				dir, err := newSocketDirs(parent, func(string) {})
				if err != nil {
					t.Error(err)
					return
				}
				if !isAt(dir.lock, dir.path) {
					t.Error("swept by another host")
				}
				if err := dir.remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// TestSocketDirRemoved: a plugin starts again after a crash even if the directory of its socket
// was removed, for example by a program that cleans up directories for temporary files.
func TestSocketDirRemoved(t *testing.T) {
	parent, err := os.MkdirTemp("", "nst")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(parent)
	h := newHost(t, Options{SocketDir: parent})
	inst, err := h.Start(t.Context(), Spec{Path: filepath.Join(pluginDir(t, "good"), testPrefix+"good")})
	if err != nil {
		t.Fatal(err)
	}
	for _, removed := range []string{h.sockets.path, parent} { // systemd removes the parent, a RuntimeDirectory=
		pid := inst.Status().PID
		if err := os.RemoveAll(removed); err != nil {
			t.Fatal(err)
		}
		if err := testkit.Signal(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, "a new process", func() bool {
			st := inst.Status()
			return st.PID != 0 && st.PID != pid && st.State == StateRunning
		})
	}
}

// After a plugin's file is replaced, the next start runs the new program, unless the new program
// has other lists. A half-written file does not count as a replacement.
func TestReplacedBinary(t *testing.T) {
	h := newHost(t, Options{Backoff: Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond}})
	dir := pluginDir(t, "good", "rogue")
	path := filepath.Join(dir, testPrefix+"good")
	inst, err := h.Start(t.Context(), Spec{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(dir, "whole")
	install(t, whole)
	if inst.Replaced(0) {
		t.Error("the file is taken for another one")
	}
	replace := func(from string) {
		t.Helper()
		if err := os.Rename(from, path); err != nil {
			t.Fatal(err)
		}
		if pid := inst.Status().PID; pid > 0 {
			_ = testkit.Signal(pid, syscall.SIGKILL) // fails if the process has ended
		}
	}
	half := filepath.Join(dir, "half")
	if err := os.WriteFile(half, []byte("\x7fELF\x02\x01\x01"), 0o755); err != nil {
		t.Fatal(err)
	}
	replace(half)
	testkit.Until(t, "the half file is an error", func() bool {
		return strings.Contains(inst.Status().LastError, "exec format error")
	})
	other := filepath.Join(dir, "other")
	script := fmt.Sprintf("#!/bin/sh\nexec %s\n", filepath.Join(dir, testPrefix+"rogue"))
	if err := os.WriteFile(other, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	replace(other)
	testkit.Until(t, "another plugin is refused", func() bool {
		return strings.Contains(inst.Status().LastError, "replaced by one with other YANG modules")
	})
	replace(whole)
	testkit.Until(t, "the plugin runs again, from the file that is there", func() bool {
		return inst.Status().State == StateRunning
	})
	if inst.Replaced(0) {
		t.Error("the file that runs is taken for an older one")
	}
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil || !inst.Replaced(0) {
		t.Errorf("a file that was built again is taken for the same: error %v", err)
	}
	if _, err := analyze(t, inst, epoch(1, ""), time.Minute); err != nil {
		t.Fatal(err)
	}
}

// A symbolic link is changed to lead to another directory. This counts as a replaced file, and the
// plugin starts from the new directory after the old one is gone.
func TestReplacedDirectory(t *testing.T) {
	h := newHost(t, Options{Backoff: Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond}})
	before, after := pluginDir(t, "good"), pluginDir(t, "good")
	copied := filepath.Join(after, testPrefix+"good") // pluginDir's files are links to one file
	program, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "plugins")
	if err := errors.Join(os.Remove(copied), os.WriteFile(copied, program, 0o755), os.Symlink(before, link)); err != nil {
		t.Fatal(err)
	}
	path, err := Find(link, "test-good")
	if err != nil {
		t.Fatal(err)
	}
	inst, err := h.Start(t.Context(), Spec{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if inst.Replaced(0) {
		t.Error("the file is taken for another one")
	}
	if err := errors.Join(os.Symlink(after, link+"-new"), os.Rename(link+"-new", link)); err != nil {
		t.Fatal(err)
	}
	if !inst.Replaced(0) {
		t.Error("the file in the other directory is taken for the same")
	}
	pid := inst.Status().PID
	if err := errors.Join(os.RemoveAll(before), testkit.Signal(pid, syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "a process from the other directory", func() bool {
		st := inst.Status()
		return st.PID != 0 && st.PID != pid && st.State == StateRunning
	})
	if inst.Replaced(0) {
		t.Error("the file that runs is taken for an older one")
	}
}

// If the file is replaced while the system starts it, the checksum belongs to the file that runs.
func TestReplacedDuringStart(t *testing.T) {
	confiner, _ := newConfiner()
	for _, after := range []bool{false, true} {
		dir := pluginDir(t, "good")
		path, whole := filepath.Join(dir, testPrefix+"good"), filepath.Join(dir, "whole")
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(whole, text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		replace := func() {
			if err := os.Rename(whole, path); err != nil {
				t.Error(err)
			}
		}
		s := &spawner{work: make(chan func()), done: make(chan struct{})}
		go func() {
			defer close(s.done)
			for start := range s.work {
				if !after {
					replace()
				}
				start()
			}
		}()
		var file os.FileInfo
		logs := newLogSink(slog.New(slog.DiscardHandler), 1, 1)
		p := newProcess(launch{path: path, logs: logs, onStart: func(f os.FileInfo) { file = f }}, nil, s,
			confiner.confine(dir, 0))
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after {
			replace()
		}
		if got := Replaced(path, file, 0); got != after {
			t.Errorf("replaced after the start %t: reported as replaced %t", after, got)
		}
		p.kill()
		<-p.exited
		p.stdout.Close()
		p.stderr.Close()
		s.close()
	}
}

// A plugin that was started with --listen is used like any other. A call may wait at a breakpoint
// without a time limit. When the plugin is started again, the collector connects again. The
// plugin's log lines appear in the collector's log, with their levels.
func TestAttach(t *testing.T) {
	var log testkit.Log
	h := newHost(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Backoff: Backoff{Base: time.Millisecond, Max: time.Hour}, CallTimeout: time.Nanosecond,
		HealthInterval: time.Millisecond})
	dir := pluginDir(t, "good")
	socket := filepath.Join(dir, "socket")
	if _, err := h.Start(t.Context(), Spec{Path: socket}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without a plugin: %v", err)
	}
	run := func() *exec.Cmd {
		cmd := exec.Command(filepath.Join(dir, testPrefix+"good"), "--listen", socket)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	end := func(cmd *exec.Cmd) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	first := run()
	testkit.Until(t, "the plugin listens", func() bool { return IsSocket(socket) })
	inst, err := h.Start(t.Context(), Spec{Path: socket})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := analyze(t, inst, epoch(1, ""), time.Minute); err != nil {
		t.Error(err)
	}
	configured := func() int { return strings.Count(log.String(), "level=INFO msg=configured plugin=socket greet=") }
	testkit.Until(t, "the collector logs what the plugin logs", func() bool { return configured() == 1 })
	end(first)
	testkit.Until(t, "the collector waits for a plugin", func() bool {
		return strings.Contains(inst.Status().LastError, "start it with --listen "+socket)
	})
	if st := inst.Status(); st.PID != 0 || st.Restarts == 0 {
		t.Errorf("status %+v", st)
	}
	second := run()
	testkit.Until(t, "the collector is attached again", func() bool { return inst.Status().State == StateRunning })
	if _, err := analyze(t, inst, epoch(2, ""), time.Minute); err != nil {
		t.Error(err)
	}
	testkit.Until(t, "the log goes on", func() bool { return configured() == 2 })
	inst.Stop(t.Context())
	again, err := h.Start(t.Context(), Spec{Path: socket})
	if err != nil {
		t.Fatalf("the plugin ends with the collector: %v", err)
	}
	if _, err := analyze(t, again, epoch(3, ""), time.Minute); err != nil {
		t.Error(err)
	}
	again.Stop(t.Context())
	end(second)
}

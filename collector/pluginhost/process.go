// SPDX-License-Identifier: Apache-2.0

//go:build unix

package pluginhost

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// pipeGrace is how long output is read after a process has ended. The process's own output is
// available at once, but a descendant that does not end may keep the pipe open.
const pipeGrace = 250 * time.Millisecond

// spawner starts processes from one thread. The kernel sends the parent-death signal when the
// thread that started the process ends, so that thread lives as long as the host.
type spawner struct {
	work chan func()
	done chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range s.work {
			f()
		}
	}()
	return s
}

// start starts the command and returns its process number. It is not called after close.
func (s *spawner) start(cmd *exec.Cmd) (int, error) {
	result := make(chan error, 1)
	s.work <- func() { result <- cmd.Start() }
	if err := <-result; err != nil {
		return 0, err
	}
	return cmd.Process.Pid, nil
}

func (s *spawner) close() {
	close(s.work)
	<-s.done
}

// process is a plugin process, from start to reaping. It implements go-plugin's runner.Runner:
// go-plugin reads the handshake from Stdout and calls Kill and Wait.
type process struct {
	path        string
	spawner     *spawner
	confinement *confinement
	cmd         *exec.Cmd
	onStart     func(file os.FileInfo) // receives the file that was started; nil if it is not known
	attached    bool                   // someone else has started the process, and only its connection is ended
	logs        *logSink
	stdin       *os.File // write end; it closes when the host dies, which the plugin sees as the end of its input
	stdout      *handshakeReader
	stderr      *os.File

	ended  chan struct{} // closed when the process has ended
	exited chan struct{} // closed when the process is reaped and its descendants have ended

	mu          sync.Mutex
	started     bool
	killed      bool
	reaped      bool
	outOfMemory bool // the kernel killed the process for exceeding its memory limit
}

// newProcess prepares the program at path to run in a session of its own.
func newProcess(l launch, env []string, spawner *spawner, c *confinement) *process {
	cmd := exec.Command(l.path)
	cmd.Env = env
	cmd.Dir = filepath.Dir(l.path)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	return &process{path: l.path, spawner: spawner, confinement: c, cmd: cmd, onStart: l.onStart, logs: l.logs,
		ended: make(chan struct{}), exited: make(chan struct{})}
}

// attachedProcess returns the process behind the socket at a path.
func attachedProcess(l launch) *process {
	return &process{path: l.path, attached: true, confinement: &confinement{}, logs: l.logs, ended: make(chan struct{}),
		exited: make(chan struct{})}
}

// Start implements runner.Runner.
func (p *process) Start(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return errors.New("stopped before its start")
	}
	var ends []*os.File // the child's ends of the pipes, closed here after the start
	defer func() {
		for _, f := range ends {
			f.Close()
		}
	}()
	pipe := func() (ours, theirs *os.File, err error) { // ours is the end that this process reads
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		ends = append(ends, w)
		return r, w, nil
	}
	stdin, w, err := os.Pipe()
	if err != nil {
		return err
	}
	ends = append(ends, stdin)
	stdout, theirOut, err := pipe()
	if err != nil {
		w.Close()
		return err
	}
	stderr, theirErr, err := pipe()
	if err != nil {
		w.Close()
		stdout.Close()
		return err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, theirOut, theirErr
	before, _ := os.Stat(p.path)
	err = p.confinement.start(p.cmd.SysProcAttr, func() (int, error) { return p.spawner.start(p.cmd) })
	if err != nil && p.cmd.Process == nil {
		w.Close()
		stdout.Close()
		stderr.Close()
		return err
	}
	p.started, p.stdin, p.stderr = true, w, stderr
	if p.onStart != nil {
		p.onStart(startedFile(p.path, p.cmd.Process.Pid, before))
	}
	p.stdout = &handshakeReader{file: stdout, in: bufio.NewReaderSize(stdout, 64<<10), logs: p.logs.writer("stdout")}
	go p.reap(stdout, stderr)
	if err != nil { // the process runs without its memory limit
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	return err
}

// startedFile returns the file that runs as the process. before is the file that was at the path
// before the start: it may have been replaced since, either before or after the system opened it.
func startedFile(path string, pid int, before os.FileInfo) os.FileInfo {
	now, err := os.Stat(path)
	runs, runsErr := os.Stat(fmt.Sprintf("/proc/%d/exe", pid)) // the interpreter if the file is a script
	if err == nil && runsErr == nil && os.SameFile(runs, now) {
		return now
	}
	return before
}

// reap waits for the process, ends its descendants and then reaps it. In this order, the numbers
// of the process and of its session cannot be reused too early.
func (p *process) reap(stdout, stderr *os.File) {
	unreaped := waitUnreaped(p.cmd.Process.Pid)
	if !unreaped {
		_ = p.cmd.Wait() // ProcessState has the result
	}
	close(p.ended)
	p.mu.Lock()
	if unreaped {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	p.reaped = true
	p.mu.Unlock()
	outOfMemory, left := p.confinement.end()
	if len(left) > 0 {
		p.logs.logger.Error("processes of a plugin do not end", "pids", left)
	}
	if unreaped {
		_ = p.cmd.Wait()
	}
	p.confinement.release()
	p.mu.Lock()
	p.outOfMemory = outOfMemory
	p.mu.Unlock()
	limit := time.Now().Add(pipeGrace)
	_ = stdout.SetReadDeadline(limit)
	_ = stderr.SetReadDeadline(limit)
	p.stdin.Close()
	close(p.exited)
}

// kill ends the process and its process group at once. A process that has not started yet never
// starts.
func (p *process) kill() { p.signal(syscall.SIGKILL) }

// terminate sends SIGTERM.
func (p *process) terminate() { p.signal(syscall.SIGTERM) }

func (p *process) signal(s syscall.Signal) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	if p.attached {
		p.reaped = true
		close(p.ended)
		close(p.exited)
		return
	}
	p.killed = p.killed || s == syscall.SIGKILL
	if p.started {
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}

// ends waits until the process has ended and exitErr says how; it returns false after exitGrace.
func (p *process) ends() bool {
	if p.attached {
		return false
	}
	select {
	case <-p.ended:
		<-p.exited
		return true
	case <-time.After(exitGrace):
		return false
	}
}

// exitErr returns how the process ended, once exited is closed. It wraps ErrOutOfMemory if the
// process exceeded its memory limit.
func (p *process) exitErr() error {
	if p.attached {
		return errors.New("was disconnected")
	}
	state := p.cmd.ProcessState
	if state == nil {
		return errors.New("ended")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	method := p.confinement.method()
	err := fmt.Errorf("exited with status %d", state.ExitCode())
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		err = fmt.Errorf("was killed by signal %d (%s)", int(status.Signal()), status.Signal())
		if status.Signal() == syscall.SIGKILL && !p.killed && !p.outOfMemory {
			return fmt.Errorf("was %w, by signal %d (%s)", errKilled, int(status.Signal()), status.Signal())
		}
	}
	if p.outOfMemory || method == MemoryRlimit && !state.Success() && noMemory.MatchString(p.logs.stderrTail()) {
		return fmt.Errorf("%w: %w of %d MiB (%s); raise memory-limit if the plugin needs more", err, ErrOutOfMemory,
			p.confinement.limit>>20, method)
	}
	return err
}

// endedHere reports whether the process ended because the host killed it.
func (p *process) endedHere() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.killed || p.cmd.ProcessState == nil {
		return false
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}

// noMemory matches what runtimes write when the system refuses memory: Go and Java, the C library,
// C++, Python, Rust.
var noMemory = regexp.MustCompile(
	`(?i)out of memory|OutOfMemoryError|cannot allocate memory|bad_alloc|MemoryError|memory allocation of`)

// waitIfStarted returns when the process has ended or if it was never started.
func (p *process) waitIfStarted() {
	if p.pid() != 0 {
		<-p.exited
	}
}

// pid returns the process number, or 0 if there is no process.
func (p *process) pid() int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		return 0
	}
	return p.cmd.Process.Pid
}

// Wait implements runner.Runner.
func (p *process) Wait(context.Context) error { <-p.exited; return nil }

// Kill implements runner.Runner. go-plugin calls it as soon as the output ends before the
// handshake. Kill lets a process that is about to end do so, which preserves its exit status and
// its last lines.
func (p *process) Kill(context.Context) error {
	if p.pid() != 0 && p.version() < 0 {
		select {
		case <-p.ended:
		case <-time.After(exitGrace):
		}
	}
	p.kill()
	return nil
}

// Stdout implements runner.Runner.
func (p *process) Stdout() io.ReadCloser { return p.stdout }

// Stderr implements runner.Runner.
func (p *process) Stderr() io.ReadCloser { return p.stderr }

// Name implements runner.Runner.
func (p *process) Name() string { return p.path }

// ID implements runner.Runner.
func (p *process) ID() string { return strconv.Itoa(p.pid()) }

// Diagnose implements runner.Runner.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.Runner.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin implements runner.Runner.
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// handshakeLine matches go-plugin's handshake: core version, protocol version, network, address, …
var handshakeLine = regexp.MustCompile(`^([0-9]+)\|([0-9]+)\|[a-z]+\|[^|]+(\||$)`)

// maxPreamble bounds the output before the handshake, in bytes.
const maxPreamble = 1 << 20

// handshakeReader passes only the handshake to go-plugin. Other output, with lines of any length,
// goes to the log.
type handshakeReader struct {
	file *os.File
	in   *bufio.Reader
	logs *lineWriter

	pending []byte // bytes of the handshake that go-plugin has not read

	mu   sync.Mutex
	line string // the handshake
	read int    // bytes before the handshake
}

// Read implements io.Reader for one goroutine of go-plugin.
func (r *handshakeReader) Read(b []byte) (int, error) {
	for len(r.pending) == 0 {
		if r.handshake() != "" || r.over() {
			_, err := io.Copy(r.logs, r.in) // reads to the end of the output
			r.logs.flush()
			if err == nil {
				err = io.EOF
			}
			return 0, err
		}
		line, err := r.in.ReadSlice('\n')
		if m := handshakeLine.Find(bytes.TrimSpace(line)); m != nil {
			r.mu.Lock()
			r.line = string(bytes.TrimSpace(line))
			r.mu.Unlock()
			r.pending = append(r.pending, line...)
			break
		}
		r.mu.Lock()
		r.read += len(line)
		r.mu.Unlock()
		if len(line) > 0 {
			_, _ = r.logs.Write(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			r.logs.flush()
			return 0, io.EOF
		}
	}
	n := copy(b, r.pending)
	r.pending = r.pending[n:]
	return n, nil
}

// Close implements io.Closer.
func (r *handshakeReader) Close() error { return r.file.Close() }

// handshake returns the handshake line, or "" before it has arrived.
func (r *handshakeReader) handshake() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.line
}

// over reports whether the process wrote more than maxPreamble before a handshake. The reader then
// stops looking for a handshake.
func (r *handshakeReader) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read > maxPreamble
}

// version returns the protocol version that the handshake names, or -1.
func (p *process) version() int {
	if p == nil {
		return -1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stdout == nil {
		return -1
	}
	m := handshakeLine.FindStringSubmatch(p.stdout.handshake())
	if m == nil {
		return -1
	}
	version, _ := strconv.Atoi(m[2]) // the largest int if it is out of range
	return version
}

// SPDX-License-Identifier: Apache-2.0

// Descendants of plugins. This process is the subreaper of its descendants: a descendant whose
// parent has ended becomes a child of this process, whatever its session and environment are.

package pluginhost

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// family holds the plugin processes of all hosts. The value is the socket directory that
// descendants inherit in their environment, or "" once the plugin and its descendants have ended.
// The lock is held while a process is started, so that the process is never taken for an orphan.
var family = struct {
	sync.Mutex
	plugins map[int]string // by process number
}{plugins: map[int]string{}}

// processInfo is a line of the process table.
type processInfo struct {
	pid, parent, session int
	zombie               bool
	start                string // start time, which distinguishes processes with the same number
}

// processes returns all processes, or no process if /proc is missing.
func processes() iter.Seq[*processInfo] {
	return func(yield func(*processInfo) bool) {
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			if p := readProcess(pid); p != nil && !yield(p) {
				return
			}
		}
	}
}

// readProcess returns the process with this number, or nil if there is none.
func readProcess(pid int) *processInfo {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	// "PID (NAME) STATE PARENT GROUP SESSION …"; the name may have any characters.
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 20 {
		return nil
	}
	p := &processInfo{pid: pid, zombie: f[0] == "Z", start: f[19]}
	p.parent, _ = strconv.Atoi(f[1])
	p.session, _ = strconv.Atoi(f[3])
	return p
}

// socketDirOf returns the directory of a plugin's socket that an environment names, or "".
func socketDirOf(environment []byte) string {
	for variable := range bytes.SplitSeq(environment, []byte{0}) {
		if dir, ok := bytes.CutPrefix(variable, []byte("PLUGIN_UNIX_SOCKET_DIR=")); ok {
			return string(dir)
		}
	}
	return ""
}

// environment returns the environment with which the process was started. It is empty for a
// process of another user, and while the process executes another program.
func (p *processInfo) environment() []byte {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	return text
}

// adopted reports whether this process has adopted p and p belongs to no running plugin. Children
// that this process started itself are in its own session, except for plugins. The caller has
// locked family.
func (p *processInfo) adopted() bool {
	self := os.Getpid()
	if _, plugin := family.plugins[p.pid]; plugin || p.parent != self || family.plugins[p.session] != "" {
		return false
	}
	if own := readProcess(self); own == nil || p.session == own.session {
		return false
	}
	environment := p.environment()
	for try := 0; len(environment) == 0 && !p.zombie && try < 50; try++ {
		time.Sleep(time.Millisecond)
		environment = p.environment()
	}
	dir := socketDirOf(environment)
	return dir == "" || !slices.Contains(slices.Collect(maps.Values(family.plugins)), dir)
}

// endFamily kills the processes for which belongs is true, and their descendants, until none is
// left or endGrace is over. It returns the numbers of the remaining processes. belongs is called
// with family locked.
func endFamily(belongs func(*processInfo) bool) (left []int) {
	pause := time.Millisecond
	for limit := time.Now().Add(endGrace); ; time.Sleep(pause) {
		pause = min(pause*3/2, 10*time.Millisecond) // each round reads all processes
		left = left[:0]
		family.Lock()
		for _, p := range members(slices.Collect(processes()), os.Getpid(), belongs) {
			if !p.end() {
				left = append(left, p.pid)
			}
		}
		family.Unlock()
		if len(left) == 0 || time.Now().After(limit) {
			return left
		}
	}
}

// members returns the processes of all for which belongs is true, and their descendants. A plugin
// leads a session of its own, so this process (self), its session and its ancestors are never
// included.
func members(all []*processInfo, self int, belongs func(*processInfo) bool) (out []*processInfo) {
	table := map[int]*processInfo{}
	for _, p := range all {
		table[p.pid] = p
	}
	if table[self] == nil {
		return nil
	}
	spared := map[int]bool{}
	for p := table[self]; p != nil && !spared[p.pid]; p = table[p.parent] {
		spared[p.pid] = true
	}
	found := map[int]bool{}
	for _, p := range all {
		spared[p.pid] = spared[p.pid] || p.session == table[self].session
		found[p.pid] = !spared[p.pid] && belongs(p)
	}
	for before := -1; before != len(out); { // until no further descendant is found
		before, out = len(out), out[:0]
		for _, p := range all {
			if found[p.pid] = found[p.pid] || found[p.parent] && !spared[p.pid]; found[p.pid] {
				out = append(out, p)
			}
		}
	}
	return out
}

// end kills or reaps a process. It returns true if no further step is needed for the process.
func (p *processInfo) end() bool {
	if p.zombie {
		if p.parent != os.Getpid() {
			return true // its parent reaps it, or this process does once it has adopted it
		}
		pid, err := unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
		return pid == p.pid || err != nil
	}
	process, err := os.FindProcess(p.pid) // a handle, which stays with this process even if the number is reused
	if err != nil {
		return true
	}
	defer process.Release() //nolint:errcheck // closes the handle
	if now := readProcess(p.pid); now == nil || now.start != p.start {
		return true
	}
	return errors.Is(process.Kill(), os.ErrProcessDone)
}

// reapOrphans reaps adopted processes that end by themselves, until stop is called. Other children
// of this process are reaped where they were started.
func reapOrphans() (stop func()) {
	ended, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(ended, syscall.SIGCHLD)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-ended:
			case <-done:
				return
			}
			family.Lock()
			for p := range processes() {
				if p.zombie && p.adopted() {
					p.end()
				}
			}
			family.Unlock()
			select { // at most one scan a second, even if a plugin starts many processes
			case <-time.After(time.Second):
			case <-done:
				return
			}
		}
	})
	return func() {
		signal.Stop(ended)
		close(done)
		all.Wait()
	}
}

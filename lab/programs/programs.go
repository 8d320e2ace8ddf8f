// SPDX-License-Identifier: Apache-2.0

// Package programs runs programs as processes, for checks that measure, signal and kill them.
package programs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Patience bounds the wait for the end of a program that got a signal.
const Patience = 2 * time.Minute

// Program is a process. Its output is in a file.
type Program struct {
	Name   string
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts a command in a directory, in which NAME.log gets its output. Environment is added to
// the environment of this process.
func Start(dir, name string, environment []string, command ...string) (*Program, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own descriptor
	p := &Program{Name: name, cmd: exec.Command(command[0], command[1:]...), exited: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.Env = append(os.Environ(), environment...)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: build it with `make build`", err)
	}
	go func() {
		_ = p.cmd.Wait() // the log has the reason
		close(p.exited)
	}()
	return p, nil
}

// PID is the number of the process.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Ended reports whether the process has ended.
func (p *Program) Ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Wait waits for the end of the process, for Patience at most.
func (p *Program) Wait() error {
	select {
	case <-p.exited:
		return nil
	case <-time.After(Patience):
		return fmt.Errorf("%s has not ended within %v", p.Name, Patience)
	}
}

// End ends the process by a signal and waits for its end. It fails if the process had ended before.
func (p *Program) End(signal os.Signal) error {
	if p.Ended() {
		return fmt.Errorf("%s has ended by itself: see its log", p.Name)
	}
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.Wait()
}

// FreeAddresses returns addresses of the loopback interface on which nothing listens.
func FreeAddresses(n int) (all []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // closed together, so that all addresses differ
		all = append(all, l.Addr().String())
	}
	return all, nil
}

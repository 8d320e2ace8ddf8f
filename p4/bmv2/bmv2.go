// SPDX-License-Identifier: Apache-2.0

// Package bmv2 runs BMv2's simple_switch_grpc, if installed, as a process on loopback: a second
// switch to compare results with. Building and testing work without it: Start then returns
// ErrNotInstalled.
package bmv2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Program is the name of the switch's program.
const Program = "simple_switch_grpc"

// ErrNotInstalled: simple_switch_grpc is not on the PATH.
var ErrNotInstalled = errors.New(Program + " is not on the PATH")

// Config is the switch's configuration. The zero value works.
type Config struct {
	DeviceID uint64 // 0 stands for 1
	CPUPort  uint32 // 0 stands for 255
	Program  string // file with BMv2 JSON to start with; "": no program runs until P4Runtime pushes one
}

// Switch is a running simple_switch_grpc. Its methods may be called from any goroutine.
type Switch struct {
	cmd        *exec.Cmd
	p4rt, data string
	thrift     string        // address; "": the program was built without Thrift
	dir        string        // directory of the switch's log
	ended      chan struct{} // closed when the process has ended
	close      sync.Once
}

// Start starts the switch, and waits until it takes connections.
func Start(ctx context.Context, cfg Config) (*Switch, error) {
	path, err := exec.LookPath(Program)
	if err != nil {
		return nil, ErrNotInstalled
	}
	if cfg.DeviceID == 0 {
		cfg.DeviceID = 1
	}
	if cfg.CPUPort == 0 {
		cfg.CPUPort = 255
	}
	s := &Switch{ended: make(chan struct{})}
	if s.dir, err = os.MkdirTemp("", "netsketch-bmv2-"); err != nil {
		return nil, fmt.Errorf("%s: %w", Program, err)
	}
	if err := s.start(ctx, path, cfg); err != nil {
		s.removeDir()
		return nil, fmt.Errorf("%s: %w", Program, err)
	}
	if err := s.wait(ctx, s.p4rt); err != nil {
		err = fmt.Errorf("%s: %w\n%s", Program, err, s.Log())
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Switch) start(ctx context.Context, path string, cfg Config) error {
	addresses, err := freeAddresses(3)
	if err != nil {
		return err
	}
	s.p4rt, s.data = addresses[0], addresses[1]
	program := "--no-p4"
	if cfg.Program != "" {
		program = cfg.Program
	}
	args := []string{program, "--device-id", strconv.FormatUint(cfg.DeviceID, 10)}
	helpCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ask := exec.CommandContext(helpCtx, path, "--help")
	ask.WaitDelay = time.Second
	help, _ := ask.CombinedOutput() // starting the switch fails for the same reasons
	if bytes.Contains(help, []byte("--thrift-port")) {
		_, port, err := net.SplitHostPort(addresses[2])
		if err != nil {
			return err
		}
		s.thrift = addresses[2]
		args = append(args, "--thrift-port", port)
	}
	args = append(args, "--", "--grpc-server-addr", s.p4rt, "--dp-grpc-server-addr", s.data, "--cpu-port",
		strconv.FormatUint(uint64(cfg.CPUPort), 10))
	log, err := os.Create(s.logName())
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own descriptor
	s.cmd = exec.Command(path, args...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, log, log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // Close killed the process, or Log has its error
	}()
	return nil
}

// startTimeout bounds how long the program may take to answer or to take connections.
const startTimeout = 20 * time.Second

// wait waits until the switch takes connections.
func (s *Switch) wait(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.ended:
			return fmt.Errorf("it ended before it took connections: %v", s.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("it takes no connections: %w", errors.Join(err, ctx.Err()))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// freeAddresses returns loopback addresses without a listener. If another process binds one before
// the switch does, the switch ends with an error.
func freeAddresses(n int) (out []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // closed at the end, so that the addresses differ
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// P4Runtime is the address of the switch's P4Runtime service.
func (s *Switch) P4Runtime() string { return s.p4rt }

// DataPlane is the address of p4.bm.DataplaneInterface, which carries packets; see package
// dataplane.
func (s *Switch) DataPlane() string { return s.data }

// Log returns the end of the switch's log.
func (s *Switch) Log() string {
	b, err := os.ReadFile(s.logName())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[max(0, len(b)-4096):]))
}

func (s *Switch) logName() string { return filepath.Join(s.dir, "simple_switch_grpc.log") }

// Ended is closed when the process has ended.
func (s *Switch) Ended() <-chan struct{} { return s.ended }

// Close kills the process, which has no state worth a graceful end.
func (s *Switch) Close() {
	s.close.Do(func() {
		_ = s.cmd.Process.Kill() // the process may have ended
		<-s.ended
		s.removeDir()
	})
}

func (s *Switch) removeDir() { _ = os.RemoveAll(s.dir) }

// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command harm breaks agents, collectors, switches and paths while UDP, TCP and ping run between
// two hosts with OmniMon's agent in the kernel, and counts the packets that telemetry costs. `make
// netns-harm` runs all cases and fails if one of them loses more packets than its bound.
//
// The network of a case:
//
//	h1 ─┐                      ┌─ h2     hosts with agents
//	    s1 ─── router ─── s2 ──┤
//	c1 ─┘                      └─ c2     hosts without agents: the control pair
//
// s1 and s2 are soft switches, the router is Linux. The control pair exchanges the same streams as
// the hosts with agents. A packet that was lost is telemetry's loss, unless the control pair lost
// packets of the same stream at the same time.
//
// Each case is a process in namespaces of its own for the network, process ids and mounts. Whatever
// ends that process, the kernel then ends all programs of the case and removes its interfaces, its
// routes and the pins of its agents. So cases cannot meet each other, other runs or the machine's
// own network.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/netsketch/netsketch/lab/evidence"
)

func main() {
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "harm:", err)
		os.Exit(1)
	}
}

func command() error {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "`directory` of netsketch and its plugins")
	flag.StringVar(&o.carrier, "carrier", "", "run all cases with this `carrier`: option, shim, tunnel; "+
		"plain: without the key, in a network of switches alone")
	flag.DurationVar(&o.epoch, "epoch", time.Second, "length of epochs")
	only := flag.String("run", "", "run the cases whose name matches the regular `expression`")
	quick := flag.Bool("quick", false, "run the few cases that CI runs")
	list := flag.Bool("list", false, "print the names of the cases")
	parallel := flag.Int("parallel", 1, "`count` of cases that run at a time")
	logs := flag.String("logs", "", "keep the logs of all cases in this `directory`; default: of failed cases, in /tmp")
	child := flag.String("case", "", "internal: run one case in this process")
	dir := flag.String("dir", "", "internal: directory of the case")
	flag.Parse()
	if *child != "" {
		return inside(*child, *dir, o)
	}
	selected, err := choose(*only, *quick)
	if err != nil {
		return err
	}
	if *list {
		for _, s := range selected {
			fmt.Printf("%-32s %s\n", s.name, s.what)
		}
		return nil
	}
	if reason := missing(); reason != "" {
		fmt.Println("harm: skipped:", reason)
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return all(ctx, selected, o, *parallel, *logs)
}

// options are the options of the command line that a case needs.
type options struct {
	bin, carrier string
	epoch        time.Duration
}

// choose returns the cases that the command line selects.
func choose(only string, quick bool) ([]scenario, error) {
	expression, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	var selected []scenario
	for _, s := range scenarios {
		if expression.MatchString(s.name) && (!quick || s.quick) {
			selected = append(selected, s)
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("no case matches %q; -list prints their names", only)
	}
	return selected, nil
}

// missing returns why no case can run here, empty if they can.
func missing() string {
	if os.Geteuid() != 0 {
		return "network namespaces and programs in the kernel need root"
	}
	for _, program := range []string{"ip", "ethtool", "sysctl"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not on the PATH"
		}
	}
	probe := exec.Command("true")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if err := probe.Run(); err != nil {
		return fmt.Sprintf("namespaces cannot be created: %v", err)
	}
	return ""
}

const namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET

// all runs cases and prints their table.
func all(ctx context.Context, selected []scenario, o options, parallel int, logs string) error {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	o.bin = bin
	run, err := os.MkdirTemp("", "netsketch-harm-")
	if err != nil {
		return err
	}
	defer os.Remove(run) // the directory stays if it has logs
	for _, s := range selected {
		if s.settings.ahead != 0 {
			if err := buildWrongClock(o.bin); err != nil {
				return err
			}
		}
	}
	began := evidence.Run() // the working tree may have another commit at the end
	rows := make([]row, len(selected))
	slots := make(chan bool, max(1, parallel))
	var done sync.WaitGroup
	for i, s := range selected {
		slots <- true
		if ctx.Err() != nil {
			break
		}
		done.Go(func() {
			defer func() { <-slots }()
			dir := filepath.Join(run, s.name)
			if logs != "" {
				dir = filepath.Join(logs, s.name)
			}
			begin := time.Now()
			rows[i] = outside(ctx, s, dir, o)
			rows[i].Took = time.Since(begin).Round(time.Second)
			if len(rows[i].Wrong) == 0 && logs == "" {
				_ = os.RemoveAll(dir) // a remaining directory does no harm
			}
			fmt.Fprintf(os.Stderr, "%s: %s (%v)\n", s.name, rows[i].verdict(), rows[i].Took)
		})
	}
	done.Wait()
	if ctx.Err() != nil {
		_ = os.RemoveAll(run) // a remaining directory does no harm
		return errors.New("interrupted; everything is removed")
	}
	printTable(os.Stdout, began, rows)
	failed := 0
	for _, r := range rows {
		if len(r.Wrong) > 0 {
			failed++
		}
	}
	if failed > 0 {
		where := run
		if logs != "" {
			where = logs
		}
		return fmt.Errorf("%d of %d cases failed; their logs are in %s", failed, len(rows), where)
	}
	return nil
}

// outside runs a case as a process in namespaces of its own and returns its row.
func outside(ctx context.Context, s scenario, dir string, o options) row {
	broken := func(err error) row { return row{Name: s.name, Wrong: []string{err.Error()}} }
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return broken(err)
	}
	self, err := os.Executable()
	if err != nil {
		return broken(err)
	}
	in, out, err := os.Pipe()
	if err != nil {
		return broken(err)
	}
	defer in.Close()
	log, err := os.Create(filepath.Join(dir, "case.log"))
	if err != nil {
		return broken(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, self, "-case", s.name, "-dir", dir, "-bin", o.bin, "-carrier", o.carrier,
		"-epoch", o.epoch.String())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{out}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	// The kernel ends the process with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	out.Close()
	if err != nil {
		return broken(err)
	}
	var r row
	text, errRead := io.ReadAll(in)
	if err := errors.Join(errRead, cmd.Wait()); err != nil {
		tail, _ := os.ReadFile(log.Name())
		lines := strings.Split(strings.TrimSpace(string(tail)), "\n")
		return broken(fmt.Errorf("%w: %s", err, lines[len(lines)-1]))
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return broken(err)
	}
	return r
}

// inside runs a case in this process, which has namespaces of its own, and writes its row to
// file 3.
func inside(name, dir string, o options) error {
	for _, s := range scenarios {
		if s.name != name {
			continue
		}
		r, err := s.run(dir, o)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.NewFile(3, "row")).Encode(r)
	}
	return fmt.Errorf("no case is called %q", name)
}

// SPDX-License-Identifier: Apache-2.0

// Package netns reads results of a collector in a network of namespaces, and runs programs in the
// namespaces. The checks of examples and lab/harm use it. The scripts of the examples share
// examples/internal/netns/lib.sh.
package netns

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Collector is the gNMI address of the collector.
const Collector = "10.255.0.1:9339"

// Row holds the keys and values of a list's row.
type Row map[string]any

// Text returns a text; empty if the leaf is missing.
func (r Row) Text(name string) string {
	s, _ := r[name].(string)
	return s
}

// Number returns an integer, which JSON may represent as text. If the leaf is missing or not a
// number, Number ends the program, because 0 could pass for a count.
func (r Row) Number(name string) int64 {
	switch v := r[name].(type) {
	case float64:
		return int64(v)
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("leaf %s: %v", name, err))
		}
		return n
	}
	panic(fmt.Sprintf("leaf %s: %v, want a number", name, r[name]))
}

// Is returns a boolean; false if the leaf is missing.
func (r Row) Is(name string) bool {
	b, _ := r[name].(bool)
	return b
}

// Query returns the rows of all lists below a path of a gNMI server. The rows of containers are
// under the name "". netsketch is the path of the program.
func Query(netsketch, path, address string) (map[string][]Row, error) {
	cmd := exec.Command(netsketch, "query", path, "--json", "--plaintext", "--address", address)
	var message bytes.Buffer
	cmd.Stderr = &message
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("query %s: %w: %s", path, err, message.String())
	}
	var parts []struct {
		List string
		Rows []struct{ Keys, Values Row }
	}
	if err := json.Unmarshal(out, &parts); err != nil {
		return nil, fmt.Errorf("query %s: %w", path, err)
	}
	lists := map[string][]Row{}
	for _, p := range parts {
		for _, r := range p.Rows {
			all := Row{}
			maps.Copy(all, r.Keys)
			maps.Copy(all, r.Values)
			lists[p.List] = append(lists[p.List], all)
		}
	}
	return lists, nil
}

// Program returns a command that runs this program in the namespace of a host.
func Program(host string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("ip", append([]string{"netns", "exec", "nsk-" + host, self}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// Kill ends the agent of a host by SIGKILL, and waits until the process has ended. run is the
// directory of logs and process ids.
func Kill(run, host string) error {
	text, err := os.ReadFile(filepath.Join(run, host+".pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	for range 1000 { // until the agent has released its pins; its parent may not have reaped it
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("process %d has not ended", pid)
}

// Start starts the agent of a host again, as a service manager does.
func Start(netsketch, run, host string) error {
	log, err := os.OpenFile(filepath.Join(run, host+".log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer log.Close()
	agent := filepath.Join(filepath.Dir(netsketch), "netsketch-agent")
	cmd := exec.Command("ip", "netns", "exec", "nsk-"+host, agent, "--config",
		filepath.Join(run, host+".yaml"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(run, host+".pid"), []byte(fmt.Sprintln(cmd.Process.Pid)), 0o600)
}

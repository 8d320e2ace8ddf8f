// SPDX-License-Identifier: Apache-2.0

//go:build linux

// An agent whose time of day is wrong.

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

// wrongClock is the file of netsketch-agent with a time of day that is ahead by
// NETSKETCH_HARM_AHEAD. The clock of the machine cannot be set for one process.
const wrongClock = "netsketch-agent-wrong-clock"

// clockReads are the places in the agent's source that read the time of day, and their
// replacements.
var clockReads = []struct{ file, old, new string }{
	{"hostagent/agent/agent.go", "func (wallClock) Now() time.Time { return time.Now() }",
		`func (wallClock) Now() time.Time {
	d, _ := time.ParseDuration(os.Getenv("NETSKETCH_HARM_AHEAD"))
	return time.Now().Add(d)
}`},
	{"hostagent/omnimon/kernel/path_linux.go", "since := time.Since(zero)",
		`d, _ := time.ParseDuration(os.Getenv("NETSKETCH_HARM_AHEAD"))
	since := time.Since(zero) + d`},
}

// buildWrongClock builds an agent whose clock is wrong.
func buildWrongClock(bin string) error {
	root, err := testkit.Root()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "netsketch-harm-clock-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	replaced := map[string]string{}
	for i, c := range clockReads {
		path := filepath.Join(root, c.file)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.Contains(string(text), c.old) {
			return fmt.Errorf("%s does not have %q: say in lab/harm/clock.go where it reads the time of day", c.file, c.old)
		}
		changed := strings.Replace(string(text), c.old, c.new, 1)
		if !strings.Contains(changed, "\t\"os\"\n") {
			changed = strings.Replace(changed, "import (\n", "import (\n\t\"os\"\n", 1)
		}
		replaced[path] = filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(replaced[path], []byte(changed), 0o600); err != nil {
			return err
		}
	}
	files, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, files, 0o600); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-overlay", overlay, "-ldflags", "-s -w", "-o", filepath.Join(bin, wrongClock),
		"./cmd/netsketch-agent")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("netsketch-agent with a wrong clock: %w: %s", err, out)
	}
	return nil
}

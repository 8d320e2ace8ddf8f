// SPDX-License-Identifier: Apache-2.0

// A collector whose time of day can be set.

package faults

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The machine's clock cannot be set for one process. The collector of these trials is built with
// another time of day: the machine's, plus an offset that a file has. Everything else, monotonic
// time included, is the product's.
const (
	wallClock = "func (Wall) Now() time.Time { return time.Now() }"
	setClock  = `func (Wall) Now() time.Time {
	text, _ := os.ReadFile(os.Getenv("NETSKETCH_FAULTS_CLOCK"))
	offset, _ := time.ParseDuration(string(text))
	return time.Now().Add(offset).Round(0)
}`
)

// buildStepped builds the collector with the offset in its time of day.
var buildStepped = sync.OnceValues(func() (string, error) {
	dir := filepath.Dir(programs.plugins)
	original, err := filepath.Abs(filepath.Join("..", "..", "collector", "epoch", "clock.go"))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	changed := strings.Replace(strings.Replace(string(text), wallClock, setClock, 1), `"fmt"`, "\"fmt\"\n\t\"os\"", 1)
	source, overlay := filepath.Join(dir, "clock.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(source, []byte(changed), 0o600); err != nil {
		return "", err
	}
	files, err := json.Marshal(map[string]map[string]string{"Replace": {original: source}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, files, 0o600); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "netsketch-stepped")
	return program, goBuild(program, "./cmd/netsketch", "-overlay", overlay)
})

func (t *trial) clockFile() string { return filepath.Join(t.dir, "clock") }

// stepped makes the trial run the collector whose clock can be set.
func stepped(t *trial) {
	program, err := buildStepped()
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.needs.collector = program
	t.environment = append(t.environment, "NETSKETCH_FAULTS_CLOCK="+t.clockFile())
}

// step sets the collector's time of day, and waits until epochs have gone on.
func step(t *trial, offset string) {
	t.Helper()
	before := t.recorder.last()
	next := t.clockFile() + ".next"
	if err := os.WriteFile(next, []byte(offset), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, t.clockFile()); err != nil {
		t.Fatal(err)
	}
	t.within(7, "five epochs after the clock was set", func() bool { return t.recorder.last() >= before+5 })
	d, err := time.ParseDuration(offset)
	if err != nil {
		t.Fatal(err)
	}
	warned, right := 0, 0
	for e := before; e <= t.recorder.last(); e++ {
		r := t.recorder.seen(e)
		if r.warnings != "" && strings.Contains(r.warnings, "time of day") {
			warned++
		}
		// A result arrives within the deadline after the end of its epoch by the new time.
		if late := r.at.Add(d).Sub(r.end); late > -interval/10 && late < 3*interval {
			right++
		}
	}
	t.see("%d epochs with an accuracy warning, %d with the new time", warned, right)
	t.require(warned >= 1 && warned <= 2, "%d epochs have an accuracy warning, promised one or two", warned)
	t.require(right >= 3, "%d of %d epochs have the new time", right, t.recorder.last()-before+1)
}

// stepSeen checks that the log reports the step of the clock.
func stepSeen(t *trial) {
	n := t.collector.logged("the time of day was set; epochs follow it")
	t.see("the time of day is the machine's plus an offset, for this process alone")
	t.require(n == 1, "%d lines in the log", n)
}

// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab/evidence"
)

var (
	write = flag.Bool("write", false, "write the rows into docs/evidence/faults.csv")
	only  = flag.String("only", "", "run the cases whose fault matches the regular `expression`")
)

// programs are built once for all cases.
var programs binaries

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == faultyFile {
		runFaulty()
		return
	}
	flag.Parse()
	dir, err := os.MkdirTemp("", "netsketch-faults-bin-")
	if err == nil && !testing.Short() {
		programs, err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Every promise holds. Without -only, a few cases run.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes for some seconds")
	}
	var rows []row
	before := evidence.Load()
	for _, f := range cases {
		chosen := f.short
		if *only != "" {
			chosen = regexp.MustCompile(*only).MatchString(f.name)
		}
		if !chosen {
			continue
		}
		r := row{fault: f.name, promise: f.promise}
		switch {
		case f.linux && runtime.GOOS != "linux":
			r.notRun = "needs Linux"
		case f.root && os.Geteuid() != 0:
			r.notRun = "needs root"
		default:
			t.Run(f.name, func(t *testing.T) { r = f.run(t, programs) })
		}
		t.Logf("%v with epochs of %v; seen: %s\n%s", r.took.Round(time.Second), r.interval, strings.Join(r.seen, "; "), r)
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		t.Errorf("no case matches %q", *only)
	}
	if *write && len(rows) > 0 {
		writeTable(t, rows, before)
	}
}

// TestEpochLength: epochs are 1 s long while the load is low, and at most 3 s under any load.
func TestEpochLength(t *testing.T) {
	for load, want := range map[float64]time.Duration{0: 1, 0.4: 1, 4: 1, 4.1: 2, 8: 2, 8.1: 3, 12: 3, 100: 3} {
		if got := epochLength(load, 2); got != want*time.Second {
			t.Errorf("load %v on two processors: epochs of %v, want %d s", load, got, want)
		}
	}
}

// The names of cases are unique, and each case has what it needs to be judged.
func TestCases(t *testing.T) {
	var names []string
	for _, f := range cases {
		if f.promise == "" || f.inject == nil || f.back == 0 && f.check == nil {
			t.Errorf("%q is not complete", f.name)
		}
		if slices.Contains(names, f.name) {
			t.Errorf("%q is there twice", f.name)
		}
		names = append(names, f.name)
	}
}

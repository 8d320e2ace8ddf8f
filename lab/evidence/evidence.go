// SPDX-License-Identifier: Apache-2.0

// Package evidence names the code, the day and the machine of measured figures.
package evidence

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Run returns the line that stands with every table of measured figures: commit, day, processors
// and load of the run, such as "commit 91b6be9b, 2026-11-27, 2 processors, load 0.78". A commit
// that ends in -dirty had changed files other than docs.
func Run() string {
	return fmt.Sprintf("commit %s, %s, %d processors, load %.2f", commit(), time.Now().UTC().Format(time.DateOnly),
		runtime.NumCPU(), Load())
}

// Load returns the load average of the last minute; 0 if the system provides none.
func Load() float64 {
	b, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(b), " ")
	v, _ := strconv.ParseFloat(one, 64)
	return v
}

// commit names the commit of the working tree. Changed pages do not make it dirty: a run may have
// written them itself.
func commit() string {
	b, err := exec.Command("git", "describe", "--always", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(b))
	if exec.Command("git", "diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)docs").Run() != nil {
		name += "-dirty"
	}
	return name
}

// WriteCSV writes the lines of a table, the first of which is its heading, below a comment with
// Run.
func WriteCSV(w io.Writer, lines [][]string) error {
	if _, err := fmt.Fprintf(w, "# %s\n", Run()); err != nil {
		return err
	}
	return csv.NewWriter(w).WriteAll(lines)
}

// ReadCSV reads lines that WriteCSV wrote, without the comment.
func ReadCSV(r io.Reader) ([][]string, error) {
	c := csv.NewReader(r)
	c.Comment = '#'
	return c.ReadAll()
}

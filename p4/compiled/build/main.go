// SPDX-License-Identifier: Apache-2.0

// Command build compiles the programs in p4/programs with p4c-bm2-ss and writes, for
// each, BMv2 JSON, P4Info and the digest of the sources into p4/compiled. Run it as
// "make p4" from anywhere in the repository.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/netsketch/netsketch/p4/compiled/internal/sources"
)

func main() {
	p4c := flag.String("p4c", "p4c-bm2-ss", "the compiler: a name on the PATH, or a file")
	flag.Parse()
	if err := run(*p4c, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "make p4:", err)
		os.Exit(1)
	}
}

// run compiles the named programs, or all programs if names is empty.
func run(p4c string, programs []string) error {
	p4c, err := exec.LookPath(p4c)
	if err != nil {
		return fmt.Errorf("%w: the P4 programs are compiled with p4c-bm2-ss, version 1.2.4 or newer, from "+
			"https://github.com/p4lang/p4c (package p4lang-p4c); what it made is in the repository, so only a "+
			"change of p4/programs needs it", err)
	}
	root, err := repository()
	if err != nil {
		return err
	}
	from, to := filepath.Join(root, "p4", "programs"), filepath.Join(root, "p4", "compiled")
	all, err := sources.Programs(os.DirFS(from))
	if err != nil {
		return err
	}
	if len(programs) == 0 {
		programs = all
	}
	for _, name := range programs {
		if err := compile(p4c, from, to, name); err != nil {
			return fmt.Errorf("program %s: %w", name, err)
		}
	}
	return writeDigests(p4c, from, to, all, programs)
}

// repository returns the directory of go.mod, at or above the working directory.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod here or above: run it inside the repository")
		}
		dir = up
	}
}

// compile leaves the old files as they are unless the compiler succeeds.
func compile(p4c, from, to, name string) error {
	tmp, err := os.MkdirTemp("", "netsketch-p4-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	out, info := filepath.Join(tmp, "out.json"), filepath.Join(tmp, "out.p4info.txtpb")
	// Checksums leave out the fields of invalid headers; sketchint.p4 uses that.
	cmd := exec.Command(p4c, "--std", "p4-16", "--Wdisable=invalid-header", "--p4runtime-files", info, "-o", out,
		name+".p4")
	cmd.Dir = from // so that no path of this machine gets into the files
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	err = cmd.Run()
	if log.Len() > 0 {
		fmt.Fprint(os.Stderr, log.String())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	if err := compact(out, filepath.Join(to, name+".json")); err != nil {
		return err
	}
	text, err := os.ReadFile(info)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, name+".p4info.txtpb"), text, 0o644)
}

// fragment is a piece of the program's source. p4c adds one to every construct, and the whole
// expansion of a macro to each of its statements.
var fragment = regexp.MustCompile(`"source_fragment":"((?:[^"\\]|\\.)*)"`)

// mostFragment is the largest length of a kept fragment, in characters. File and line, which errors
// name, always stay.
const mostFragment = 60

func cut(text []byte) []byte {
	return fragment.ReplaceAllFunc(text, func(pair []byte) []byte {
		var s string
		if err := json.Unmarshal(pair[len(`"source_fragment":`):], &s); err != nil {
			return pair
		}
		r := []rune(s)
		if len(r) <= mostFragment {
			return pair
		}
		short, err := json.Marshal(string(r[:mostFragment]) + "…")
		if err != nil {
			return pair
		}
		return append([]byte(`"source_fragment":`), short...)
	})
}

// compact copies JSON without white space, which is most of it, and with source fragments cut,
// which are more than half of the rest. The result fits into a gRPC message of the default limit, 4
// MiB.
func compact(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return fmt.Errorf("what p4c wrote: %w", err)
	}
	b.WriteByte('\n')
	return os.WriteFile(to, cut(b.Bytes()), 0o644)
}

// writeDigests renews the lines of the programs that were compiled and keeps the
// other ones.
func writeDigests(p4c, from, to string, all, compiled []string) error {
	file := filepath.Join(to, "digests.txt")
	lines := map[string]string{}
	if old, err := os.ReadFile(file); err == nil {
		for line := range strings.Lines(string(old)) {
			if name, _, ok := strings.Cut(line, " "); ok {
				lines[name] = line
			}
		}
	}
	version, err := exec.Command(p4c, "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s --version: %w", p4c, err)
	}
	for _, name := range compiled {
		digest, err := sources.Digest(os.DirFS(from), name)
		if err != nil {
			return err
		}
		lines[name] = fmt.Sprintf("%s %s p4c-%s\n", name, digest, release(string(version)))
	}
	var b strings.Builder
	b.WriteString("# Generated by \"make p4\". Program, SHA-256 of its sources, compiler.\n")
	for _, name := range all {
		b.WriteString(lines[name])
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// release returns the first word of the form 1.2.3 in what p4c --version prints.
func release(version string) string {
	for _, word := range strings.Fields(version) {
		if strings.Count(word, ".") >= 2 && word[0] >= '0' && word[0] <= '9' {
			return word
		}
	}
	return "unknown"
}

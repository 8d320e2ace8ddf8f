// SPDX-License-Identifier: Apache-2.0

// Package scaffold writes Go modules of plugins, P4 programs and host roles of one's own. Their
// templates are copies of modules in examples, which cannot be embedded.
package scaffold

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

//go:generate sh -c "rm -rf plugin program role && cp -r ../../examples/plugin-hello plugin"
//go:generate sh -c "cp -r ../../examples/cocosketch program && cp -r ../../examples/hostagent-hello role"
//go:generate rm -f program/netsketch-plugin-cocosketch program/hostagent-cocosketch role/hostagent-hello
//go:generate sh -c "find plugin program role -type f -exec mv {} {}.tmpl \\;"
//go:embed plugin program role
var templates embed.FS

// Template is a template.
type Template struct {
	top  string // directory below templates
	name string // replaced in names and texts
}

// The templates.
var (
	Plugin  = Template{"plugin", "hello"}
	Program = Template{"program", "cocosketch"}
	Role    = Template{"role", "hello"}
)

// Module returns the absolute path of netsketch's Go module: dir, or the first of the default
// places if dir is empty. exe is the path of this binary.
func Module(dir, exe string) (string, error) {
	if dir != "" {
		if isModule(dir) {
			return filepath.Abs(dir)
		}
		return "", fmt.Errorf("--netsketch %s: no go.mod of the module github.com/netsketch/netsketch in this directory", dir)
	}
	installed := filepath.Join(filepath.Dir(exe), "..", "share", "netsketch", "go")
	for _, dir := range []string{".", filepath.Join(filepath.Dir(exe), ".."), installed} {
		if isModule(dir) {
			return filepath.Abs(dir)
		}
	}
	return "", fmt.Errorf("no Go module of netsketch in %s: install the package netsketch, or set the directory of a "+
		"checkout with --netsketch", filepath.Clean(installed))
}

// isModule reports whether dir has netsketch's Go module: a checkout or an installed package.
func isModule(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.HasPrefix(string(text), "module github.com/netsketch/netsketch\n")
}

// replaceLine begins the last line of the go.mod of a template.
const replaceLine = "replace github.com/netsketch/netsketch => "

// includes is the directory of netsketch's P4 includes in the Makefile of a template.
const includes = "../../p4/programs/include"

// Write writes the files of the template into dir, which must not exist, under another name. The Go
// module uses netsketch's module at the path module.
func (t Template) Write(name, dir, module string) error {
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("%s exists; name another directory after the name", dir)
	}
	err := fs.WalkDir(templates, t.top, func(from string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(from, ".tmpl"), t.top), "/")
		recording := path.Ext(to) == ".rec"
		if !recording {
			to = strings.ReplaceAll(to, t.name, name)
		}
		to = filepath.Join(dir, filepath.FromSlash(to))
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		text, err := templates.ReadFile(from)
		if err != nil {
			return err
		}
		if !recording {
			text = bytes.ReplaceAll(text, []byte(t.name), []byte(name))
		}
		switch filepath.Base(to) {
		case "go.mod":
			before, _, _ := strings.Cut(string(text), replaceLine)
			text = []byte(before + replaceLine + module + "\n")
		case "Makefile":
			text = bytes.ReplaceAll(text, []byte(includes), []byte(filepath.Join(module, "p4", "programs", "include")))
		}
		return os.WriteFile(to, text, 0o644)
	})
	if err != nil || t != Program {
		return err
	}
	return digest(filepath.Join(dir, "p4", name+".sha256"))
}

// digest writes the digests of the renamed files of a program.
func digest(list string) error {
	dir := filepath.Dir(list)
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	var digests []byte
	for line := range strings.Lines(string(text)) {
		file := strings.Fields(line)[1]
		contents, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		digests = fmt.Appendf(digests, "%x  %s\n", sha256.Sum256(contents), file)
	}
	return os.WriteFile(list, digests, 0o644)
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

// pluginTemplate holds a copy of the files of examples/plugin-hello, which cannot be embedded
// because it is a module of its own. TestPluginNew compares the two.
//
//go:generate sh -c "rm -rf plugintemplate && cp -r ../../examples/plugin-hello plugintemplate"
//go:generate sh -c "find plugintemplate -type f -exec mv {} {}.tmpl \\;"
//go:embed plugintemplate
var pluginTemplate embed.FS

// templateName is the name of the plugin in the template.
const templateName = "hello"

func pluginNewCommand() *cobra.Command {
	var module string
	cmd := &cobra.Command{
		Use:   "new NAME [DIR]",
		Short: "Write the Go module of a new plugin, with its YANG module, tests and a recording",
		Long: "Write the Go module of a new plugin into a new directory, by default netsketch-plugin-NAME: a plugin\n" +
			"that builds, its YANG module, tests and a recording. It counts the used cells of every array; put\n" +
			"your algorithm in their place.",
		Example: "  netsketch plugin new porttop\n" +
			"  cd netsketch-plugin-porttop && go test . && go build",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			dir := pluginhost.FilePrefix + name
			if len(args) == 2 {
				dir = args[1]
			}
			err := checkNewName(name)
			if err == nil {
				module, err = goModule(module)
			}
			if err == nil {
				err = writeTemplate(pluginTemplate, "plugintemplate", templateName, name, dir, module)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: the plugin %s, built with %s; README.md describes it\n", dir, name, module)
			return nil
		},
	}
	cmd.Flags().StringVar(&module, "netsketch", "", goModuleUsage)
	return cmd
}

// goModuleUsage documents the flag --netsketch of commands that write a Go module.
const goModuleUsage = "`directory` of netsketch's Go module to build with; default: the checkout of the current " +
	"directory or of this binary, then ../share/netsketch/go beside this binary"

// checkNewName refuses the name of a new plugin if a plugin cannot have it, or if a plugin that
// comes with netsketch has it.
func checkNewName(name string) error {
	if err := pluginhost.CheckName(name); err != nil {
		return err
	}
	if slices.ContainsFunc(scenario.Algorithms(), func(a score.Algorithm) bool { return a.Plugin == name }) {
		return fmt.Errorf("the plugin %s comes with netsketch; choose another name", name)
	}
	return nil
}

// goModule returns the absolute path of netsketch's Go module: dir, or the first of the default
// places if dir is empty.
func goModule(dir string) (string, error) {
	if dir != "" {
		if isGoModule(dir) {
			return filepath.Abs(dir)
		}
		return "", fmt.Errorf("--netsketch %s: no go.mod of the module github.com/netsketch/netsketch in this directory", dir)
	}
	exe, err := executable()
	if err != nil {
		return "", err
	}
	installed := filepath.Join(filepath.Dir(exe), "..", "share", "netsketch", "go")
	for _, dir := range []string{".", filepath.Join(filepath.Dir(exe), ".."), installed} {
		if isGoModule(dir) {
			return filepath.Abs(dir)
		}
	}
	return "", fmt.Errorf("no Go module of netsketch in %s: install the package netsketch, or set the directory of a "+
		"checkout with --netsketch", filepath.Clean(installed))
}

// isGoModule reports whether dir has netsketch's Go module: a checkout or an installed package.
func isGoModule(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.HasPrefix(string(text), "module github.com/netsketch/netsketch\n")
}

// writeTemplate writes the files of a template below top into dir, which must not exist. In names
// and texts it replaces the template's name by name. The Go module uses netsketch's module at the
// path module.
func writeTemplate(files embed.FS, top, template, name, dir, module string) error {
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("%s exists; name another directory after the name", dir)
	}
	return fs.WalkDir(files, top, func(from string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(from, ".tmpl"), top), "/")
		recording := path.Ext(to) == ".rec"
		if !recording {
			to = strings.ReplaceAll(to, template, name)
		}
		to = filepath.Join(dir, filepath.FromSlash(to))
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		text, err := files.ReadFile(from)
		if err != nil {
			return err
		}
		if !recording {
			text = bytes.ReplaceAll(text, []byte(template), []byte(name))
		}
		if filepath.Base(to) == "go.mod" {
			before, _, _ := strings.Cut(string(text), replaceLine)
			text = []byte(before + replaceLine + module + "\n")
		}
		return os.WriteFile(to, text, 0o644)
	})
}

// replaceLine begins the last line of the go.mod of a template.
const replaceLine = "replace github.com/netsketch/netsketch => "

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// pluginTemplate holds a copy of the files of examples/plugin-hello, which cannot be embedded
// because it is a module of its own. TestPluginNew compares both.
//
//go:generate sh -c "rm -rf plugintemplate && cp -r ../../examples/plugin-hello plugintemplate"
//go:generate sh -c "find plugintemplate -type f -exec mv {} {}.tmpl \\;"
//go:embed plugintemplate
var pluginTemplate embed.FS

// templateName is the name of the plugin in the template.
const templateName = "hello"

var newPluginName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

func pluginNewCommand() *cobra.Command {
	var sdk string
	cmd := &cobra.Command{
		Use:   "new NAME [DIR]",
		Short: "Write the Go module of a new plugin, with its YANG module, tests and a recording",
		Long: "Write the Go module of a new plugin into a new directory, by default netsketch-plugin-NAME: a plugin\n" +
			"that builds, its YANG module, tests and a recording. It counts the used cells of every array; put\n" +
			"your algorithm in their place.",
		Example: "  netsketch plugin new porttop --netsketch ~/src/netsketch\n" +
			"  cd netsketch-plugin-porttop && go test . && go build",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			dir := "netsketch-plugin-" + name
			if len(args) == 2 {
				dir = args[1]
			}
			if !newPluginName.MatchString(name) || len(name) > 32 {
				return fmt.Errorf("plugin name %q: expected at most 32 lower-case letters, digits and single dashes, a "+
					"letter first", name)
			}
			if sdk == "" {
				sdk = checkoutOf(".")
			}
			if err := writePlugin(name, dir, sdk); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "%s: the plugin %s; README.md describes it\n", dir, name)
			if sdk == "" {
				fmt.Fprintln(out, "its go.mod expects a published netsketch; --netsketch DIR builds it with a checkout")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&sdk, "netsketch", "", "`directory` of a checkout of netsketch to build with; the current "+
		"directory if it is one")
	return cmd
}

// checkoutOf returns the absolute path of dir if it is a checkout of netsketch, otherwise "".
func checkoutOf(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil || !strings.HasPrefix(string(text), "module github.com/netsketch/netsketch\n") {
		return ""
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	return path
}

// writePlugin writes the template into dir, which must not exist, with the plugin's name. The
// module uses the checkout of netsketch at sdk, or a published version if sdk is empty.
func writePlugin(name, dir, sdk string) error {
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("%s exists; name another directory after the plugin's name", dir)
	}
	const top = "plugintemplate"
	return fs.WalkDir(pluginTemplate, top, func(from string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(from, ".tmpl"), top), "/")
		if path.Ext(to) != ".rec" {
			to = strings.ReplaceAll(to, templateName, name)
		}
		to = filepath.Join(dir, filepath.FromSlash(to))
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		text, err := pluginTemplate.ReadFile(from)
		if err != nil {
			return err
		}
		if path.Ext(to) != ".rec" {
			text = []byte(strings.ReplaceAll(string(text), templateName, name))
		}
		if filepath.Base(to) == "go.mod" {
			text = []byte(withNetsketch(string(text), sdk))
		}
		return os.WriteFile(to, text, 0o644)
	})
}

// withNetsketch sets the checkout's path in the replace line at the end of a go.mod, or removes
// the line and its comment if sdk is empty.
func withNetsketch(mod, sdk string) string {
	const line = "replace github.com/netsketch/netsketch => "
	before, _, _ := strings.Cut(mod, line)
	if sdk == "" {
		before, _, _ = strings.Cut(mod, "\n// Until")
		return before
	}
	return before + line + sdk + "\n"
}

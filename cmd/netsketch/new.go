// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/internal/scaffold"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// newCommand returns a command "new", which writes a template under a name. The default directory
// is prefix followed by the name; what names the result in the command's output.
func newCommand(t scaffold.Template, prefix, what, short, long, example string) *cobra.Command {
	var module string
	cmd := &cobra.Command{
		Use: "new NAME [DIR]", Short: short, Long: long, Example: example,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, dir := args[0], prefix+args[0]
			if len(args) == 2 {
				dir = args[1]
			}
			if err := checkNewName(name, t); err != nil {
				return err
			}
			exe, err := executable()
			if err != nil {
				return err
			}
			from, err := scaffold.Module(module, exe)
			if err != nil {
				return err
			}
			if err := t.Write(name, dir, from); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s %s, built with %s; README.md describes it\n", dir, what, name, from)
			return nil
		},
	}
	cmd.Flags().StringVar(&module, "netsketch", "", "`directory` of netsketch's Go module to build with; default: the "+
		"checkout of the current directory or of this binary, then ../share/netsketch/go beside this binary")
	return cmd
}

// checkNewName refuses a name that a plugin cannot have, that a plugin of netsketch has, or that
// P4 does not allow.
func checkNewName(name string, t scaffold.Template) error {
	if err := sdk.CheckName(name); err != nil {
		return fmt.Errorf("%w: plugins, programs and roles of hosts share the rules of names", err)
	}
	if slices.ContainsFunc(scenario.Algorithms(), func(a score.Algorithm) bool { return a.Plugin == name }) {
		return fmt.Errorf("the plugin %s comes with netsketch; choose another name", name)
	}
	switch {
	case t == scaffold.Program && strings.Contains(name, "-"):
		return fmt.Errorf("%q is not a name in P4: expected letters and digits without dashes", name)
	case t == scaffold.Program && name == "own", name == "netsketch":
		return fmt.Errorf("the files and annotations of netsketch have the name %s; choose another name", name)
	case t == scaffold.Program && slices.Contains([]string{"switch", "core", "v1model"}, name):
		return fmt.Errorf("the program p4/%s.p4 would be found in the place of the file that it includes; choose another "+
			"name", name)
	case t == scaffold.Role:
		return nil
	}
	module := fmt.Sprintf("module acme-%s { namespace \"urn:%[1]s\"; prefix own; container %[1]s; }", name)
	modules := []sdk.Module{{Name: "acme-" + name, Text: module}}
	if _, err := adopt(sdk.Description{Name: name, Modules: modules}); err != nil {
		return fmt.Errorf("the plugin could not publish below /%s; choose another name: %w", name, err)
	}
	return nil
}

func pluginNewCommand() *cobra.Command {
	return newCommand(scaffold.Plugin, pluginhost.FilePrefix, "the plugin",
		"Write the Go module of a new plugin, with its YANG module, tests and a recording",
		"Write the Go module of a new plugin into a new directory, by default netsketch-plugin-NAME: a plugin\n"+
			"that builds, its YANG module, tests and a recording. It counts the used cells of every array; put\n"+
			"your algorithm in their place.",
		"  netsketch plugin new porttop\n  cd netsketch-plugin-porttop && go test . && go build")
}

func p4NewCommand() *cobra.Command {
	return newCommand(scaffold.Program, "", "the program and plugin",
		"Write a P4 program of your own, with its tests and the plugin that reads it",
		"Write a P4 program of your own into a new directory, by default NAME: a program on netsketch's includes,\n"+
			"the plugin that reads its registers, a host agent, tests on the soft switch, and scenarios that play\n"+
			"them. They contain an example, CocoSketch; put your algorithm in its place.",
		"  netsketch p4 new mysketch && cd mysketch && make && netsketch demo --scenario scenario.yaml")
}

func hostagentNewCommand() *cobra.Command {
	return newCommand(scaffold.Role, "hostagent-", "an agent with the role",
		"Write the Go module of a host agent with a role of your own",
		"Write the Go module of a host agent with a role of your own into a new directory, by default\n"+
			"hostagent-NAME. The role counts packets and bytes; put your measurement in their place.",
		"  netsketch hostagent new bursts\n  cd hostagent-bursts && go test . && go build")
}

// SPDX-License-Identifier: Apache-2.0

// Package usage lets commands print the arguments that they expect, under the name that the user
// called.
package usage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/internal/suggest"
)

// Explain changes a program's command and those below it: an error about their arguments shows the
// whole line that is expected, a group refuses subcommands that it does not have, and help names
// the program as the user has called it, such as bin/netsketch.
func Explain(program *cobra.Command) { explain(program, os.Args[0]) }

func explain(program *cobra.Command, called string) {
	if filepath.Base(called) != program.Name() { // a test, or a program that links this one's packages
		called = program.Name()
	}
	if called != program.Name() {
		help, usage := program.HelpFunc(), program.UsageFunc()
		program.SetHelpFunc(func(cmd *cobra.Command, args []string) {
			renamed(cmd, called, func() { help(cmd, args) })
		})
		program.SetUsageFunc(func(cmd *cobra.Command) (err error) {
			renamed(cmd, called, func() { err = usage(cmd) })
			return err
		})
	}
	walk(program, called)
}

// renamed runs f, which writes lines and quotes that begin with the program's name, and replaces
// this name.
func renamed(cmd *cobra.Command, called string, f func()) {
	out, text := cmd.OutOrStdout(), &strings.Builder{}
	cmd.SetOut(text)
	f()
	cmd.SetOut(out)
	name := cmd.Root().Name()
	r := strings.NewReplacer("\n  "+name+" ", "\n  "+called+" ", `"`+name+" ", `"`+called+" ",
		"`"+name+" ", "`"+called+" ")
	fmt.Fprint(out, r.Replace(text.String()))
}

func walk(cmd *cobra.Command, called string) {
	for _, c := range cmd.Commands() {
		walk(c, called)
	}
	if !cmd.Runnable() && cmd.HasParent() {
		cmd.DisableFlagsInUseLine = true
		cmd.Args = cobra.NoArgs
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		line := called + strings.TrimPrefix(cmd.UseLine(), cmd.Root().Name())
		switch {
		case err == nil:
			return nil
		case cmd.HasSubCommands() && len(args) > 0:
			var names []string
			for _, c := range cmd.Commands() {
				names = append(names, c.Name())
			}
			near := suggest.Nearest(args[0], names)
			if near != "" {
				near = fmt.Sprintf("; did you mean %q?", near)
			}
			return fmt.Errorf("%s has no subcommand %q%s (see %s --help)", cmd.Name(), args[0], near,
				called+strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()))
		case strings.Contains(err.Error(), "arg(s)") || strings.HasPrefix(err.Error(), "unknown command"):
			given := "no argument is given"
			if len(args) > 0 {
				given = fmt.Sprintf("the arguments %q are given", args)
			}
			return fmt.Errorf("%s: %s; expected `%s`", cmd.Name(), given, line)
		}
		return err
	}
}

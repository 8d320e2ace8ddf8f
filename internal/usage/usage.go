// SPDX-License-Identifier: Apache-2.0

// Package usage lets commands print the arguments that they expect, under the name that the user
// called.
package usage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/netsketch/netsketch/internal/suggest"
	"github.com/netsketch/netsketch/settings"
)

// Explain changes a program's command and those below it: an error about their arguments shows the
// whole line that is expected, a group refuses subcommands that it does not have, an error about a
// flag names the most similar flag, and help names the program as the user has called it, such as
// bin/netsketch.
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
	program.InitDefaultHelpCmd() // adds the commands help and completion now, so that walk finds them
	program.InitDefaultCompletionCmd()
	walk(program, called)
	program.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return flagError(cmd, err, called+strings.TrimPrefix(cmd.CommandPath(), program.Name()))
	})
}

// flagError adds the most similar flag to the error for an unknown flag, and removes the name of
// the function that could not read a value.
func flagError(cmd *cobra.Command, err error, line string) error {
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := suggest.Nearest(missing.GetSpecifiedName(), names); near != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok && settings.Decimal(invalid.GetValue()) == nil {
		f := invalid.GetFlag()
		if kind := kinds[f.Value.Type()]; kind != "" {
			err = fmt.Errorf("--%s %q: expected %s", f.Name, invalid.GetValue(), kind)
		}
	}
	return fmt.Errorf("%w; see %s --help", err, line)
}

// kinds maps pflag's names of types to descriptions of flag values.
var kinds = map[string]string{"int": "a whole number", "uint32": "a whole number from 0 to 4294967295",
	"uint64": "a whole number from 0", "duration": "a duration with its unit, such as 100ms or 1s",
	"bool": "true or false"}

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

// number is the value of a flag that is a whole number. pflag would read 010 as 8.
type number struct{ pflag.Value }

func (n number) Set(text string) error {
	if err := settings.Decimal(text); err != nil {
		return err
	}
	return n.Value.Set(text)
}

func walk(cmd *cobra.Command, called string) {
	for _, c := range cmd.Commands() {
		walk(c, called)
	}
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			if strings.HasPrefix(f.Value.Type(), "int") || strings.HasPrefix(f.Value.Type(), "uint") {
				f.Value = number{f.Value}
			}
		})
	}
	if !cmd.Runnable() {
		cmd.DisableFlagsInUseLine = true
		cmd.Args = cobra.NoArgs
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	check := cmd.Args
	switch {
	case cmd.Name() == "help" && cmd.HasParent() && !cmd.Parent().HasParent():
		check = topic
	case check == nil:
		check = cobra.ArbitraryArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		line := called + strings.TrimPrefix(cmd.UseLine(), cmd.Root().Name())
		if required := cmd.ValidateRequiredFlags(); err == nil && required != nil {
			return fmt.Errorf("%s: %w; expected `%s`", cmd.Name(), required, line)
		}
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

// topic refuses commands that help does not know.
func topic(cmd *cobra.Command, args []string) error {
	_, rest, err := cmd.Root().Find(args)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("help: there is no command %q", strings.Join(args, " "))
	}
	return err
}

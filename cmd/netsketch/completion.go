// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/p4/compiled"
)

// suggestValues lets shell completion suggest values for the flags and arguments of cmd and of the
// commands below it. The kind of a value is the word in capitals after a command's name, or the
// value's name in a flag's usage. Other kinds have no suggestions.
func suggestValues(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		suggestValues(c)
	}
	kind := ""
	if fields := strings.Fields(cmd.Use); len(fields) > 1 {
		kind = strings.Trim(fields[1], "[].")
	}
	if cmd.ValidArgsFunction == nil && cmd.Runnable() {
		cmd.ValidArgsFunction = suggestions(kind)
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, exists := cmd.GetFlagCompletionFunc(f.Name); exists || f.Value.Type() == "bool" {
			return
		}
		kind, _ := pflag.UnquoteUsage(f)
		if f.Name == "plugin" {
			kind = "plugin"
		}
		if err := cmd.RegisterFlagCompletionFunc(f.Name, suggestions(kind)); err != nil {
			panic(err) // the flag is the command's own and has no suggestions yet
		}
	})
}

// suggestions returns the function that suggests values of a kind.
func suggestions(kind string) cobra.CompletionFunc {
	switch kind {
	case "FILE", "file":
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		}
	case "DIR", "directory":
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
	case "NAME", "plugin":
		return values(pluginNames)
	case "MODULE":
		return values(moduleNames)
	case "PATH":
		return values(listPaths)
	case "level":
		return values(func(*cobra.Command) ([]string, error) { return []string{"debug", "info", "warn", "error"}, nil })
	case "program":
		return values(func(*cobra.Command) ([]string, error) { return compiled.Names(), nil })
	}
	return cobra.NoFileCompletions
}

// values returns a function that suggests the values that start with the typed text. All arguments
// of a command have the same kind. An error goes to standard error and to the file that
// BASH_COMP_DEBUG_FILE names.
func values(list func(*cobra.Command) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		all, err := list(cmd)
		if err != nil {
			cobra.CompErrorln(err.Error())
			return nil, cobra.ShellCompDirectiveError
		}
		found := slices.DeleteFunc(all, func(v string) bool { return !strings.HasPrefix(v, typed) })
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// directoryOf returns the plugin directory: the value of the command's flag, or the default.
func directoryOf(cmd *cobra.Command) (string, error) {
	if dir, err := cmd.Flags().GetString("plugins"); err == nil && dir != "" {
		return dir, nil
	}
	return pluginDirectory()
}

// pluginNames returns the plugins of the directory, without starting them.
func pluginNames(cmd *cobra.Command) (names []string, err error) {
	dir, err := directoryOf(cmd)
	if err != nil {
		return nil, err
	}
	found, _, err := pluginhost.Discover(dir) // files that would not run are not suggested
	for _, c := range found {
		names = append(names, c.Name)
	}
	return names, err
}

// shownModels loads the modules of the plugin directory, or the bundled ones if there is no
// directory.
func shownModels(cmd *cobra.Command) (*models, error) {
	dir, err := directoryOf(cmd)
	if err != nil {
		dir = ""
	}
	return loadModels(cmd.Context(), dir)
}

func moduleNames(cmd *cobra.Command) ([]string, error) {
	m, err := shownModels(cmd)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(m.texts)), nil
}

// listPaths returns the paths of all lists, as gNMI clients write them.
func listPaths(cmd *cobra.Command) (paths []string, err error) {
	m, err := shownModels(cmd)
	if err != nil {
		return nil, err
	}
	for _, l := range m.schema.Lists() {
		path := ""
		for n := l.Node; n.Parent != nil; n = n.Parent {
			path = "/" + n.Name + path
		}
		paths = append(paths, path)
	}
	return paths, nil
}

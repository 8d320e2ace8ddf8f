// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		called, args, want string
		fails              bool
	}{
		{"bin/tool", "copy", "copy: no argument is given; expected `bin/tool copy FILE --to DIR [flags]`", true},
		{"/x/other.test", "copy a b", "copy: the arguments [\"a\" \"b\"] are given; expected `tool copy FILE --to DIR [flags]`",
			true},
		{"bin/tool", "status x", "status: the arguments [\"x\"] are given; expected `bin/tool status [flags]`", true},
		{"bin/tool", "group lst", `group has no subcommand "lst"; did you mean "list"? (see bin/tool group --help)`, true},
		{"bin/tool", "group", "bin/tool group [command]", false},
		{"bin/tool", "copy --help", "  bin/tool copy a --to b", false},
		{"tool", "copy --help", "  tool copy a --to b", false},
		{"bin/tool", "", "bin/tool [command]", false},
		{"bin/tool", "statu", `tool has no subcommand "statu"; did you mean "status"? (see bin/tool --help)`, true},
		{"bin/tool", "help statu", `help: there is no command "statu"`, true},
		{"bin/tool", "help group lst", `help: there is no command "group lst"`, true},
		{"bin/tool", "help group list", "bin/tool group list", false},
		{"bin/tool", "completion fishy", `completion has no subcommand "fishy"; did you mean "fish"?`, true},
		{"bin/tool", "need", "need: required flag(s) \"plan\" not set; expected `bin/tool need [flags]`", true},
		{"bin/tool", "need --plan x --pln", "unknown flag: --pln; did you mean --plan?", true},
		{"bin/tool", "need --qqqq", "unknown flag: --qqqq; see bin/tool need --help", true},
		{"bin/tool", "need --times x", `--times "x": expected a whole number; see bin/tool need --help`, true},
		{"bin/tool", "need --plan x --times 010", "a number that begins with 0 would be octal for some programs", true},
		{"bin/tool", "need --plan x --times 0x10", "", false},
		{"bin/tool", "need --times", "flag needs an argument: --times; see bin/tool need --help", true},
	} {
		program := &cobra.Command{Use: "tool", SilenceErrors: true, SilenceUsage: true}
		do := func(*cobra.Command, []string) error { return nil }
		group := &cobra.Command{Use: "group", Short: "Things"}
		group.AddCommand(&cobra.Command{Use: "list", Args: cobra.NoArgs, RunE: do})
		need := &cobra.Command{Use: "need", RunE: do}
		need.Flags().String("plan", "", "")
		need.Flags().Int("times", 0, "")
		_ = need.MarkFlagRequired("plan")
		program.AddCommand(need, group, &cobra.Command{Use: "status", Args: cobra.NoArgs, RunE: do},
			&cobra.Command{Use: "copy FILE --to DIR", Args: cobra.ExactArgs(1), Example: "  tool copy a --to b", RunE: do})
		program.PersistentFlags().Bool("verbose", false, "")
		explain(program, tt.called)
		var out bytes.Buffer
		program.SetOut(&out)
		program.SetArgs(strings.Fields(tt.args))
		err := program.Execute()
		if (err != nil) != tt.fails {
			t.Errorf("%s %s: %v", tt.called, tt.args, err)
		}
		text := out.String()
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, tt.want) || tt.called != "tool" && !tt.fails && strings.Contains(text, "  tool ") {
			t.Errorf("%s %s:\n%s\nwant %s", tt.called, tt.args, text, tt.want)
		}
	}
}

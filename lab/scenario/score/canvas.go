// SPDX-License-Identifier: Apache-2.0

package score

import (
	"fmt"
	"strconv"
	"strings"
)

// Terminal control sequences (ECMA-48).
const (
	ClearScreen = "\x1b[H\x1b[2J"
	bold        = "\x1b[1m"
	dim         = "\x1b[2m"
	green       = "\x1b[32m"
	red         = "\x1b[31m"
	plain       = "\x1b[0m"
)

// Canvas is text for people, styled on a terminal.
type Canvas struct {
	strings.Builder
	Terminal bool
}

func (c *Canvas) style(code, text string) string {
	if !c.Terminal {
		return text
	}
	return code + text + plain
}

// Bold, Dim, Green and Red style a text.
func (c *Canvas) Bold(text string) string { return c.style(bold, text) }

// Dim is for headings of tables.
func (c *Canvas) Dim(text string) string { return c.style(dim, text) }

// Green is for what is well.
func (c *Canvas) Green(text string) string { return c.style(green, text) }

// Red is for what is not.
func (c *Canvas) Red(text string) string { return c.style(red, text) }

// Printf adds formatted text.
func (c *Canvas) Printf(format string, args ...any) { fmt.Fprintf(&c.Builder, format, args...) }

// Flows adds a table of at most n flows, measured beside true; nothing where there are none.
func (c *Canvas) Flows(title string, flows []FlowFigure, n int) {
	if len(flows) == 0 {
		return
	}
	c.WriteString(c.Dim(fmt.Sprintf("%-72s %10s %10s %8s\n", title, "measured", "true", "error")))
	for _, f := range flows[:min(n, len(flows))] {
		measured, wrong := fmt.Sprintf("%.0f", f.Measured), Percent(f.Error())
		if f.Measured == 0 {
			measured, wrong = "-", "-" // below the threshold, not published
		}
		c.Printf("%-72s %10s %10.0f %8s\n", f.Flow, measured, f.True, wrong)
	}
	c.WriteByte('\n')
}

// Percent formats a share.
func Percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 2, 64) + " %" }

// SPDX-License-Identifier: Apache-2.0

package chart

import "strings"

// columns is the width of the prose of a page.
const columns = 100

// Wrap wraps the paragraphs of a Markdown page at 100 columns. Headings, tables and images stay on
// their lines.
func Wrap(page string) string {
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		if len(line) > columns && !strings.ContainsAny(line[:1], "#|!") {
			lines[i] = wrap(line)
		}
	}
	return strings.Join(lines, "\n")
}

func wrap(paragraph string) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(paragraph) {
		width := len([]rune(word))
		switch {
		case column == 0:
		case column+1+width > columns:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += width
	}
	return b.String()
}

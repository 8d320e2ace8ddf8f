// SPDX-License-Identifier: Apache-2.0

package yang

import (
	"strconv"
	"strings"
)

// More than half of a module is prose, which goyang would scan again for each schema, rune by
// rune. goyang therefore gets a lean text without comments, in which references replace
// descriptions of more than one line. A reference consists of a mark, the module's name and the
// number of the description.

// proseMark begins a reference. No YANG string contains it (RFC 7950 section 6.1.3).
const proseMark = "\x01"

// trim sets the lean text and the descriptions of a parsed module. All statements keep their lines
// and columns.
func (t *moduleText) trim() {
	t.descriptions = t.top.descriptions(nil)
	text := t.Text
	out := make([]byte, 0, len(text))
	number := 0    // number of the next description
	begins := true // the next word is a keyword
	for len(text) > 0 {
		n := tokenLength(text)
		token := text[:n]
		switch {
		case strings.TrimLeft(token, " \t\r\n") == "":
		case isComment(token):
			out, text = append(out, blank(token)...), text[n:]
			continue
		case begins && (token == "description" || token == "reference"):
			reference := ""
			if token == "description" {
				reference = proseMark + t.name + " " + strconv.Itoa(number)
				number++
			}
			begins = false
			if length := proseLength(text[n:]); length > 0 {
				out = append(out, token+` "`+reference+`"`...)
				out, text = append(out, blank(text[n:n+length])...), text[n+length:]
				continue
			}
		default:
			begins = strings.Contains(";{}", token)
		}
		out, text = append(out, token...), text[n:]
	}
	t.lean = string(out)
}

// descriptions appends the arguments of all description statements below s in the text's order.
func (s *statement) descriptions(all []string) []string {
	if s.Keyword == "description" {
		all = append(all, s.Argument)
	}
	for _, k := range s.kids {
		all = k.descriptions(all)
	}
	return all
}

// described returns the text of a description in an entry of goyang, with a reference resolved.
func (b *builder) described(text string) string {
	reference, ok := strings.CutPrefix(text, proseMark)
	if !ok {
		return text
	}
	module, number, _ := strings.Cut(reference, " ")
	n, err := strconv.Atoi(number)
	if t := b.texts[module]; err == nil && t != nil && n >= 0 && n < len(t.descriptions) {
		return t.descriptions[n]
	}
	return text // not a reference, but a text that contains the mark
}

func isComment(text string) bool {
	return strings.HasPrefix(text, "//") || strings.HasPrefix(text, "/*")
}

// tokenLength returns the length of the token at the beginning of a text: white space, a comment,
// a string, a word or punctuation. The text must have been parsed before.
func tokenLength(text string) int {
	const space = " \t\r\n"
	end := func(n, add int) int { // n is the index of the token's end marker
		if n < 0 {
			return len(text)
		}
		return n + add
	}
	switch c := text[0]; {
	case strings.IndexByte(space, c) >= 0:
		return len(text) - len(strings.TrimLeft(text, space))
	case strings.HasPrefix(text, "//"):
		return end(strings.IndexByte(text, '\n'), 0)
	case strings.HasPrefix(text, "/*"):
		return end(strings.Index(text, "*/"), 2)
	case c == '\'':
		return end(strings.IndexByte(text[1:], '\''), 2)
	case c == '"':
		for i := 1; i < len(text); i++ {
			switch text[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
		return len(text)
	case c == ';' || c == '{' || c == '}':
		return 1
	}
	return end(strings.IndexAny(text, space+";\"'{}"), 0)
}

// proseLength returns the length of the argument at the beginning of a text, including the space
// before it, if the argument is one string of more than one line; otherwise 0.
func proseLength(text string) int {
	const space = " \t\r\n"
	at := len(text) - len(strings.TrimLeft(text, space))
	if at == 0 || at == len(text) || text[at] != '"' && text[at] != '\'' {
		return 0
	}
	n := at + tokenLength(text[at:])
	if !strings.HasPrefix(text[n:], ";") || !strings.Contains(text[:n], "\n") {
		return 0
	}
	return n
}

// blank returns a text's line feeds, followed by white space as wide as the text's last line.
func blank(text string) string {
	lines := strings.Count(text, "\n")
	last := text[strings.LastIndexByte(text, '\n')+1:]
	return strings.Repeat("\n", lines) + strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, last)
}

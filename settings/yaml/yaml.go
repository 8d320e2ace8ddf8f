// SPDX-License-Identifier: Apache-2.0

// Package yaml reads YAML text into the nodes of package settings. Aliases, merge keys and
// environment variables are resolved.
package yaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/netsketch/netsketch/internal/files"
	"github.com/netsketch/netsketch/settings"
)

// Limits that bound the time and memory that a hostile or broken file takes, with
// settings.MaxDepth.
const (
	maxBytes = 16 << 20
	maxNodes = 1 << 18
)

// Read returns the bytes of a file, and one byte more than Parse accepts of a longer one.
func Read(path string) ([]byte, error) {
	f, err := files.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return data, nil
}

// Load reads a file as a section. ${VARIABLE} is taken from the environment of the process.
func Load(path string) (settings.Section, error) {
	data, err := Read(path)
	if err != nil {
		return settings.Section{}, err
	}
	return section(path, data, os.LookupEnv)
}

// Section makes a section from text, for tests and for configurations made in code. name stands for
// the file in errors. ${NAME} is never replaced: no environment variable counts as set.
func Section(name, text string) (settings.Section, error) {
	return section(name, []byte(text), func(string) (string, bool) { return "", false })
}

func section(name string, text []byte, env func(string) (string, bool)) (settings.Section, error) {
	r := settings.NewReport(name, text)
	root := Parse(r, text, env)
	return settings.NewSection(r, root), r.Err()
}

// tree builds nodes from goccy/go-yaml's syntax tree.
type tree struct {
	*settings.Report
	env     func(string) (string, bool)
	anchors map[string]*settings.Node
	size    int
}

// Parse returns the root of a YAML text, or nil if the text is empty or not YAML. It adds all
// problems to r, which has the same text.
func Parse(r *settings.Report, text []byte, env func(string) (string, bool)) *settings.Node {
	if len(text) > maxBytes {
		r.Add(settings.Position{}, "", "larger than %d MiB", maxBytes>>20)
		return nil
	}
	if !encoded(r, text) {
		return nil
	}
	// A text joined from several files has byte order marks in front of later lines, too.
	marked := strings.TrimLeft(string(text), files.Mark)
	tokens := lexer.Tokenize(strings.ReplaceAll(marked, "\n"+files.Mark, "\n"))
	if !shallow(r, tokens) {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		syntax(r, err)
		return nil
	}
	t := &tree{Report: r, env: env, anchors: map[string]*settings.Node{}}
	var root *settings.Node
	for _, doc := range file.Docs {
		_, directive := doc.Body.(*ast.DirectiveNode) // a directive such as %YAML 1.2, before the document itself
		switch {
		case doc.Body == nil || directive:
		case root != nil:
			r.Add(position(start(doc.Body)), "", "a second YAML document begins here; expected one")
			return root
		default:
			root = t.node(doc.Body, "", 0)
		}
	}
	return root
}

// encoded checks that a text is UTF-8. The lexer would replace bytes of another encoding, also
// within a password.
func encoded(r *settings.Report, text []byte) bool {
	if _, err := files.Text(text); err != nil {
		r.Add(settings.Position{}, "", "%v", err)
		return false
	}
	for i, line := range bytes.Split(text, []byte("\n")) {
		switch {
		case !utf8.Valid(line):
			r.Add(settings.Position{Line: i + 1, Column: 1}, "", "this line is not UTF-8; save the file as UTF-8")
			return false
		case bytes.IndexByte(line, 0) >= 0:
			r.Add(settings.Position{Line: i + 1, Column: 1}, "", "this line has zero bytes, as after a power failure or in "+
				"UTF-16; restore the file, or save it as UTF-8")
			return false
		}
	}
	return true
}

// shallow checks the nesting before the parser, which recurses once per level.
func shallow(r *settings.Report, tokens token.Tokens) bool {
	brackets, onLine, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, onLine = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			if brackets == 0 {
				onLine++
			}
		}
		if brackets > settings.MaxDepth || onLine > settings.MaxDepth {
			r.Add(position(t), "", "nested more than %d deep", settings.MaxDepth)
			return false
		}
	}
	return true
}

// syntax adds an error of the YAML parser.
func syntax(r *settings.Report, err error) {
	located, ok := errors.AsType[yaml.Error](err)
	if !ok {
		r.Add(settings.Position{}, "", "not YAML")
		return
	}
	r.Add(position(located.GetToken()), "", "not YAML: %s; a text with special characters needs quotes",
		quoted.ReplaceAllStringFunc(located.GetMessage(), func(text string) string {
			if mark.MatchString(text) {
				return text
			}
			return "(not shown)"
		}))
}

var (
	quoted = regexp.MustCompile(`["'][^"']+["']`)         // text of the file in an error of goccy/go-yaml
	mark   = regexp.MustCompile(`^.[]\[{},:?&*!|>%@-].$`) // a character of YAML, which is no secret
)

// Add adds a problem found in the tree. Its path ends at the first key that names a secret: keys
// below may be parts of a secret that YAML reads as a mapping.
func (t *tree) Add(at settings.Position, path, format string, args ...any) {
	steps := strings.Split(path, ".")
	for i, step := range steps {
		name, _, _ := strings.Cut(step, "[")
		if settings.SecretKey(name) {
			path = strings.Join(steps[:i+1], ".")
			break
		}
	}
	t.Report.Add(at, path, format, args...)
}

func position(t *token.Token) settings.Position {
	if t == nil || t.Position == nil {
		return settings.Position{}
	}
	return settings.Position{Line: t.Position.Line, Column: t.Position.Column}
}

// start returns the first token of a value. goccy/go-yaml returns the first colon for a block
// mapping.
func start(n ast.Node) *token.Token {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken()
	}
	return n.GetToken()
}

// node converts a value; path is the value's path in the file.
func (t *tree) node(n ast.Node, path string, depth int) *settings.Node {
	out := &settings.Node{Position: position(start(n)), Size: 1}
	if depth > settings.MaxDepth {
		t.Add(out.Position, path, "nested more than %d deep", settings.MaxDepth)
		return out
	}
	switch n := n.(type) {
	case *ast.AnchorNode:
		out = t.node(n.Value, path, depth+1)
		t.anchors[n.Name.GetToken().Value] = out
		return out
	case *ast.AliasNode:
		return t.alias(n, path)
	case *ast.TagNode:
		if !slices.Contains(tags, n.Start.Value) { // the tag's text may be a part of a secret
			t.Add(out.Position, path, "a text that begins with ! is a YAML tag, and of these only !!str, !!int, !!float, "+
				"!!bool, !!null, !!seq and !!map are supported; put a text that begins with ! in quotes")
			return out
		}
		out = t.node(n.Value, path, depth+1)
		if n.Start.Value == string(token.StringTag) && out.Kind == settings.Scalar {
			return &settings.Node{Position: out.Position, Text: out.Text, Written: out.Written, Value: out.Text, Size: 1}
		}
		return out
	case *ast.MappingNode:
		t.mapping(out, n.Values, path, depth)
	case *ast.MappingValueNode:
		t.mapping(out, []*ast.MappingValueNode{n}, path, depth)
	case *ast.SequenceNode:
		out.Kind = settings.List
		for i, item := range n.Values {
			child := t.node(item, fmt.Sprintf("%s[%d]", path, i), depth+1)
			out.Items = append(out.Items, child)
			out.Size += child.Size
		}
	default:
		t.scalar(out, n, path)
	}
	t.count(out.Position, path, 1)
	return out
}

// tags are the YAML tags that a value may have. Others, such as !vault, would change its meaning.
var tags = []string{"!!str", "!!int", "!!float", "!!bool", "!!null", "!!seq", "!!map"}

// count adds values to the file's total. It returns false once the total exceeds the limit.
func (t *tree) count(at settings.Position, path string, values int) bool {
	if t.size <= maxNodes && t.size+values > maxNodes {
		t.Add(at, path, "more than %d values, counting aliases", maxNodes)
	}
	t.size = min(t.size+values, maxNodes+1)
	return t.size <= maxNodes
}

func (t *tree) alias(n *ast.AliasNode, path string) *settings.Node {
	name := n.Value.GetToken().Value
	null := &settings.Node{Position: position(n.GetToken()), Size: 1}
	target := t.anchors[name]
	if target == nil {
		t.Add(null.Position, path, "a value that begins with * refers to an anchor (&), and there is none of this name "+
			"before it; put a text that begins with * in quotes")
		return null
	}
	if !t.count(null.Position, path, target.Size) {
		return null
	}
	if target.Kind == settings.Scalar { // the anchor may be at a secret: messages show the alias
		shown := *target
		shown.Written = "*" + name
		return &shown
	}
	return target
}

// mapping adds entries; keys given directly take precedence over merged ones.
func (t *tree) mapping(out *settings.Node, values []*ast.MappingValueNode, path string, depth int) {
	out.Kind = settings.Mapping
	var merged []settings.Key
	seen := map[string]settings.Position{}
	for _, v := range values {
		if v.Key.IsMergeKey() {
			merged = append(merged, t.merge(t.node(v.Value, settings.Join(path, "<<"), depth+1), path)...)
			continue
		}
		k := settings.Key{Name: keyName(v.Key), At: position(v.Key.GetToken())}
		if first, twice := seen[k.Name]; twice {
			t.Add(k.At, settings.Join(path, k.Name), "key given twice, first on line %d", first.Line)
			continue
		}
		seen[k.Name] = k.At
		k.Value = t.node(v.Value, settings.Join(path, k.Name), depth+1)
		out.Keys = append(out.Keys, k)
	}
	for _, k := range merged {
		if _, given := seen[k.Name]; !given {
			seen[k.Name] = k.At
			out.Keys = append(out.Keys, k)
		}
	}
	for _, k := range out.Keys {
		out.Size += k.Value.Size
	}
}

func keyName(k ast.MapKeyNode) string {
	if s, ok := k.(*ast.StringNode); ok {
		return s.Value
	}
	return k.GetToken().Value
}

// merge returns the entries that a merge key (<<) adds.
func (t *tree) merge(n *settings.Node, path string) []settings.Key {
	switch {
	case n.IsNull():
		return nil
	case n.Kind == settings.Mapping:
		return n.Keys
	case n.Kind == settings.List:
		var keys []settings.Key
		for _, item := range n.Items {
			keys = append(keys, t.merge(item, path)...)
		}
		return keys
	}
	t.Add(n.Position, settings.Join(path, "<<"), "a merge key (<<) needs a mapping; found %s", n.Describe())
	return nil
}

// exponent matches the floats that goccy/go-yaml reads as strings, such as 1e-3.
var exponent = regexp.MustCompile(`^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$`)

// scalar sets out's text and value. It expands environment variables in strings only. An expanded
// string stays a string, even if it looks like a number: the decoder of a number parses its text.
func (t *tree) scalar(out *settings.Node, n ast.Node, path string) {
	out.Text = n.GetToken().Value
	switch n := n.(type) {
	case *ast.NullNode:
		return
	case *ast.BoolNode:
		out.Value = n.Value
		return
	case *ast.IntegerNode:
		out.Value = n.Value
		if settings.Decimal(out.Text) != nil { // the reader of the value refuses it, or takes it as a text
			out.Value = out.Text
		}
		return
	case *ast.FloatNode:
		out.Value = n.Value
	case *ast.InfinityNode:
		out.Value = n.Value
	case *ast.NanNode:
		out.Value = math.NaN()
	case *ast.LiteralNode:
		out.Text = n.Value.Value
	case *ast.StringNode:
		out.Text = n.Value
		if number := exponent.MatchString(n.Value); number && n.Token.Type == token.StringType {
			out.Value, _ = strconv.ParseFloat(n.Value, 64) // ParseFloat returns infinity if the number is out of range
		}
	}
	if _, ok := out.Value.(float64); ok {
		return
	}
	text, err := expand(out.Text, func(name string) (string, bool) {
		value, ok := t.env(name)
		t.Variable(name, value)
		return value, ok
	})
	if err != nil {
		t.Add(out.Position, path, "%s", err)
		return
	}
	out.Written, out.Text, out.Value = out.Text, text, text
	if s, ok := n.(*ast.StringNode); ok && text != out.Written && s.Token.Type == token.StringType {
		out.Value = plain(text)
	}
}

// plain returns the value of a text without quotes, which a variable gave: a boolean, a number as
// JSON writes it, or the text.
func plain(text string) any {
	switch text {
	case "true", "false":
		return text == "true"
	}
	if !jsonNumber.MatchString(text) {
		return text
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text // out of range
	}
	return f
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?$`)

// expand replaces ${NAME} with the environment variable, and ${NAME:-default} with the default if
// the variable is unset or empty, as a shell does. $$ is a dollar sign; a $ before any other
// character stands for itself.
func expand(s string, env func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		switch {
		case !found:
			return b.String(), nil
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			s = after[1:]
		case strings.HasPrefix(after, "{"):
			inside, rest, closed := braces(after[1:])
			if !closed {
				return "", errors.New("${ without a closing }: write $$ for a dollar sign")
			}
			value, err := variable(inside, env)
			if err != nil {
				return "", err
			}
			b.WriteString(value)
			s = rest
		default:
			b.WriteByte('$')
			s = after
		}
	}
}

// braces cuts s behind the expression of a ${ at its closing brace. The default of a variable may
// contain further variables.
func braces(s string) (inside, rest string, closed bool) {
	open := 1
	for i := range len(s) {
		switch {
		case strings.HasPrefix(s[i:], "${"):
			open++
		case s[i] == '}':
			if open--; open == 0 {
				return s[:i], s[i+1:], true
			}
		}
	}
	return "", "", false
}

// variable returns the value of NAME, of NAME:-default or of NAME-default, as a shell does: with a
// colon, the default also replaces an empty value.
func variable(expression string, env func(string) (string, bool)) (string, error) {
	name, fallback, hasFallback := strings.Cut(expression, "-")
	orEmpty := false
	if hasFallback {
		name, orEmpty = strings.CutSuffix(name, ":")
		if strings.ContainsAny(name, ":=?+") { // the dash is in the text of another expression, as in ${A:?not-set}
			name, hasFallback = expression, false
		}
	}
	if name == "" {
		return "", errors.New("${} names no environment variable")
	}
	value, ok := env(name)
	switch {
	case value != "" || ok && !orEmpty:
		return value, nil
	case hasFallback:
		return expand(fallback, env)
	case strings.ContainsAny(name, ":=?+"):
		return "", errors.New("of a shell's expressions, only ${NAME}, ${NAME:-default} and ${NAME-default} are " +
			"supported: write $$ for a dollar sign")
	case !variableName.MatchString(name): // the text may be part of a secret that contains ${
		return "", errors.New("${...} names no environment variable that is set: write $$ for a dollar sign")
	}
	return "", fmt.Errorf("environment variable %s is not set: set it, or give a default as ${%s:-value}", name, name)
}

// variableName matches the names of variables that messages may show.
var variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

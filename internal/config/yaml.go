// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits that bound the time and memory that a hostile or broken file takes.
const (
	maxFileBytes = 16 << 20
	maxDepth     = 64
	maxNodes     = 1 << 18
)

// node is a YAML value and its position. Aliases, merge keys and environment variables are
// resolved, so a node may be reachable by several paths. Nodes are immutable once parsed.
type node struct {
	Position
	kind nodeKind
	text string // of a scalar
	// written is the text of a string before ${NAME} is replaced, for messages.
	written string
	value   any   // of a scalar: nil (also if it cannot be read), bool, int64, uint64, float64, string
	keys    []key // of a mapping, in the order of the file
	items   []*node
	size    int // values in this tree, shared ones counted at each use
}

type nodeKind uint8

const (
	scalar nodeKind = iota
	mapping
	list
)

// key is one entry of a mapping.
type key struct {
	name  string
	at    Position
	value *node
}

// get returns the value of a key, nil if the mapping does not have it.
func (n *node) get(name string) *node {
	for _, k := range n.keys {
		if k.name == name {
			return k.value
		}
	}
	return nil
}

func (n *node) isNull() bool { return n.kind == scalar && n.value == nil }

// isEmpty reports whether a key is missing or has no value.
func (n *node) isEmpty() bool { return n == nil || n.kind == scalar && n.text == "" || n.isNull() }

// describe names the kind of a value for a message. It leaves the value's text out, which may be a
// secret written at the wrong key.
func (n *node) describe() string {
	switch {
	case n.kind == mapping:
		return "a mapping"
	case n.kind == list:
		return "a list"
	case n.isNull():
		return "nothing"
	}
	return "a single value"
}

// plain returns the value as encoding/json would decode it.
func (n *node) plain() any {
	switch n.kind {
	case mapping:
		m := make(map[string]any, len(n.keys))
		for _, k := range n.keys {
			m[k.name] = k.value.plain()
		}
		return m
	case list:
		items := make([]any, len(n.items))
		for i, item := range n.items {
			items[i] = item.plain()
		}
		return items
	}
	if x, ok := n.value.(float64); ok && (math.IsNaN(x) || math.IsInf(x, 0)) {
		return n.text // JSON has no infinity and no NaN
	}
	return n.value
}

// tree builds nodes from goccy/go-yaml's syntax tree.
type tree struct {
	*report
	env     func(string) (string, bool)
	anchors map[string]*node
	size    int
}

// parse returns the root of a YAML text, or nil if the text is empty or not YAML.
func (r *report) parse(text []byte, env func(string) (string, bool)) *node {
	if len(text) > maxFileBytes {
		r.add(Position{}, "", "larger than %d MiB", maxFileBytes>>20)
		return nil
	}
	// Some editors write a byte order mark, which has no meaning in UTF-8.
	tokens := lexer.Tokenize(strings.TrimPrefix(string(text), "\ufeff"))
	if !r.shallow(tokens) {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err)
		return nil
	}
	t := &tree{report: r, env: env, anchors: map[string]*node{}}
	var root *node
	for i, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case i > 0:
			r.add(position(start(doc.Body)), "", "a second YAML document begins here; expected one")
			return root
		default:
			root = t.node(doc.Body, "", 0)
		}
	}
	return root
}

// shallow checks the nesting before the parser, which recurses once per level.
func (r *report) shallow(tokens token.Tokens) bool {
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
		if brackets > maxDepth || onLine > maxDepth {
			r.add(position(t), "", "nested more than %d deep", maxDepth)
			return false
		}
	}
	return true
}

// syntax adds an error of the YAML parser.
func (r *report) syntax(err error) {
	located, ok := errors.AsType[yaml.Error](err)
	if !ok {
		r.add(Position{}, "", "not YAML")
		return
	}
	r.add(position(located.GetToken()), "", "not YAML: %s; a text with special characters needs quotes",
		quoted.ReplaceAllString(located.GetMessage(), "(not shown)"))
}

// quoted matches the text of the file in an error of goccy/go-yaml.
var quoted = regexp.MustCompile(`["'][^"']+["']`)

// secretKey matches the names of keys whose values are usually secrets.
var secretKey = regexp.MustCompile(`(?i)(token|secret|pass|credential|community|auth|(^|[-_.])key$)`)

// SecretKey reports whether a key's name says that its value is a secret. Messages must show
// nothing that is written at or below this key.
func SecretKey(name string) bool { return secretKey.MatchString(name) }

// add adds a problem found in the tree. Its path ends at the first key that names a secret: keys
// below may be parts of a secret that YAML reads as a mapping.
func (t *tree) add(at Position, path, format string, args ...any) {
	steps := strings.Split(path, ".")
	for i, step := range steps {
		name, _, _ := strings.Cut(step, "[")
		if SecretKey(name) {
			path = strings.Join(steps[:i+1], ".")
			break
		}
	}
	t.report.add(at, path, format, args...)
}

func position(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{}
	}
	return Position{Line: t.Position.Line, Column: t.Position.Column}
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
func (t *tree) node(n ast.Node, path string, depth int) *node {
	out := &node{Position: position(start(n)), size: 1}
	if depth > maxDepth {
		t.add(out.Position, path, "nested more than %d deep", maxDepth)
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
		out = t.node(n.Value, path, depth+1)
		if n.Start.Value == string(token.StringTag) && out.kind == scalar {
			return &node{Position: out.Position, text: out.text, written: out.written, value: out.text, size: 1}
		}
		return out
	case *ast.MappingNode:
		t.mapping(out, n.Values, path, depth)
	case *ast.MappingValueNode:
		t.mapping(out, []*ast.MappingValueNode{n}, path, depth)
	case *ast.SequenceNode:
		out.kind = list
		for i, item := range n.Values {
			child := t.node(item, fmt.Sprintf("%s[%d]", path, i), depth+1)
			out.items = append(out.items, child)
			out.size += child.size
		}
	default:
		t.scalar(out, n, path)
	}
	t.count(out.Position, path, 1)
	return out
}

// count adds values to the file's total. It returns false once the total exceeds the limit.
func (t *tree) count(at Position, path string, values int) bool {
	if t.size <= maxNodes && t.size+values > maxNodes {
		t.add(at, path, "more than %d values, counting aliases", maxNodes)
	}
	t.size = min(t.size+values, maxNodes+1)
	return t.size <= maxNodes
}

func (t *tree) alias(n *ast.AliasNode, path string) *node {
	name := n.Value.GetToken().Value
	null := &node{Position: position(n.GetToken()), size: 1}
	target := t.anchors[name]
	if target == nil {
		t.add(null.Position, path, "a value that begins with * refers to an anchor (&), and there is none of this name "+
			"before it; put a text that begins with * in quotes")
		return null
	}
	if !t.count(null.Position, path, target.size) {
		return null
	}
	return target
}

// mapping adds entries; keys given directly take precedence over merged ones.
func (t *tree) mapping(out *node, values []*ast.MappingValueNode, path string, depth int) {
	out.kind = mapping
	var merged []key
	seen := map[string]Position{}
	for _, v := range values {
		if v.Key.IsMergeKey() {
			merged = append(merged, t.merge(t.node(v.Value, join(path, "<<"), depth+1), path)...)
			continue
		}
		k := key{name: keyName(v.Key), at: position(v.Key.GetToken())}
		if first, twice := seen[k.name]; twice {
			t.add(k.at, join(path, k.name), "key given twice, first on line %d", first.Line)
			continue
		}
		seen[k.name] = k.at
		k.value = t.node(v.Value, join(path, k.name), depth+1)
		out.keys = append(out.keys, k)
	}
	for _, k := range merged {
		if _, given := seen[k.name]; !given {
			seen[k.name] = k.at
			out.keys = append(out.keys, k)
		}
	}
	for _, k := range out.keys {
		out.size += k.value.size
	}
}

func keyName(k ast.MapKeyNode) string {
	if s, ok := k.(*ast.StringNode); ok {
		return s.Value
	}
	return k.GetToken().Value
}

// merge returns the entries that a merge key (<<) adds.
func (t *tree) merge(n *node, path string) []key {
	switch {
	case n.isNull():
		return nil
	case n.kind == mapping:
		return n.keys
	case n.kind == list:
		var keys []key
		for _, item := range n.items {
			keys = append(keys, t.merge(item, path)...)
		}
		return keys
	}
	t.add(n.Position, join(path, "<<"), "a merge key (<<) needs a mapping; found %s", n.describe())
	return nil
}

// exponent matches the floats that goccy/go-yaml reads as strings, such as 1e-3.
var exponent = regexp.MustCompile(`^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$`)

// scalar sets out's text and value. Environment variables are expanded in strings only, and the
// result remains a string: a decoder that needs a number parses the text.
func (t *tree) scalar(out *node, n ast.Node, path string) {
	out.text = n.GetToken().Value
	switch n := n.(type) {
	case *ast.NullNode:
		return
	case *ast.BoolNode:
		out.value = n.Value
		return
	case *ast.IntegerNode:
		out.value = n.Value
		return
	case *ast.FloatNode:
		out.value = n.Value
	case *ast.InfinityNode:
		out.value = n.Value
	case *ast.NanNode:
		out.value = math.NaN()
	case *ast.LiteralNode:
		out.text = n.Value.Value
	case *ast.StringNode:
		out.text = n.Value
		if number := exponent.MatchString(n.Value); number && n.Token.Type == token.StringType {
			out.value, _ = strconv.ParseFloat(n.Value, 64) // ParseFloat returns infinity if the number is out of range
		}
	}
	if _, ok := out.value.(float64); ok {
		return
	}
	text, err := expand(out.text, t.env)
	if err != nil {
		t.add(out.Position, path, "%s", err)
		return
	}
	out.written, out.text, out.value = out.text, text, text
}

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
			inside, rest, closed := strings.Cut(after[1:], "}")
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

// variable returns the value of NAME or of NAME:-default.
func variable(expression string, env func(string) (string, bool)) (string, error) {
	name, fallback, hasFallback := strings.Cut(expression, ":-")
	if name == "" {
		return "", errors.New("${} names no environment variable")
	}
	value, ok := env(name)
	switch {
	case value != "" || ok && !hasFallback:
		return value, nil
	case hasFallback:
		return fallback, nil
	case !variableName.MatchString(name): // the text may be part of a secret that contains ${
		return "", errors.New("${...} names no environment variable that is set: write $$ for a dollar sign")
	}
	return "", fmt.Errorf("environment variable %s is not set: set it, or give a default as ${%s:-value}", name, name)
}

// variableName matches the names of variables that messages may show.
var variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// join appends a key to a path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

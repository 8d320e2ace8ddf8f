// SPDX-License-Identifier: Apache-2.0

package p4values

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"

	"github.com/netsketch/netsketch/internal/suggest"
)

// Annotation is one annotation of an object of the program, structured (@name[…]) or not
// (@name(…)). The body is split at commas: "key=value" goes to Values, anything
// else to List. Quotes around values are removed.
type Annotation struct {
	Name   string
	List   []string
	Values map[string]string
}

// Annotations are an object's annotations in the order of P4Info.
type Annotations []Annotation

// Find returns the first annotation with this name.
func (as Annotations) Find(name string) (Annotation, bool) {
	for _, a := range as {
		if a.Name == name {
			return a, true
		}
	}
	return Annotation{}, false
}

// Values returns the values of all annotations, by name and key. An element of a list is a key with
// an empty value.
func (as Annotations) Values() map[string]map[string]string {
	out := map[string]map[string]string{}
	for _, a := range as {
		values := out[a.Name]
		if values == nil {
			values = map[string]string{}
			out[a.Name] = values
		}
		for _, element := range a.List {
			values[element] = ""
		}
		maps.Copy(values, a.Values)
	}
	return out
}

// Only returns an error if the annotation has other keys than these.
func (a Annotation) Only(keys ...string) error {
	for _, key := range slices.Sorted(maps.Keys(a.Values)) {
		if !slices.Contains(keys, key) {
			return fmt.Errorf("@%s has the key %q; its keys are %s", a.Name, key, strings.Join(keys, ", "))
		}
	}
	return nil
}

// Int returns the number that the annotation has under key, or an error if it has none. Decimal,
// 0x, 0b and P4's width prefix ("8w5") are accepted.
func (a Annotation) Int(key string) (int64, error) {
	text, ok := a.Values[key]
	if !ok {
		return 0, fmt.Errorf("@%s has no %q", a.Name, key)
	}
	n, err := parseInt(text)
	if err != nil {
		return 0, fmt.Errorf("@%s: %s=%s is not a number", a.Name, key, text)
	}
	return n, nil
}

// ours begins the names of the annotations of data plane programs.
const ours = "netsketch_"

// bearers are the kinds of objects on which an annotation is read, by its name without ours.
var bearers = map[string]string{"readout": "register", "uncounted": "register", "bank": "table", "window": "table"}

// check returns an error if the name of an annotation is misspelled, if an annotation is on an
// object of a kind on which it is not read, or if it is there twice. Other names that begin with
// netsketch_ belong to plugins.
func (as Annotations) check(kind string) error {
	seen := map[string]bool{}
	for _, a := range as {
		name, ok := strings.CutPrefix(strings.ToLower(a.Name), ours)
		if !ok {
			continue
		}
		of := bearers[name]
		switch near := suggest.Nearest(name, slices.Sorted(maps.Keys(bearers))); {
		case near != "" && ours+near != a.Name:
			return fmt.Errorf("there is no annotation @%s; did you mean @%s?", a.Name, ours+near)
		case of != "" && of != kind:
			return fmt.Errorf("@%s is read on a %s; move it there", a.Name, of)
		case of != "" && seen[a.Name]:
			return fmt.Errorf("it has @%s twice; keep one", a.Name)
		}
		seen[a.Name] = true
	}
	return nil
}

// parseInt reads a P4 integer literal.
func parseInt(text string) (int64, error) {
	digits := text
	if w, rest, ok := strings.Cut(text, "w"); ok && !strings.HasPrefix(text, "0x") {
		if _, err := strconv.Atoi(w); err == nil {
			digits = rest
		}
	}
	return strconv.ParseInt(strings.ReplaceAll(digits, "_", ""), 0, 64)
}

// parseAnnotations reads the annotations of a preamble: the plain ones as text, then the structured
// ones.
func parseAnnotations(plain []string, structured []*p4configv1.StructuredAnnotation) Annotations {
	var out Annotations
	for _, text := range plain {
		if a, ok := parseAnnotation(text); ok {
			out = append(out, a)
		}
	}
	for _, s := range structured {
		a := Annotation{Name: s.GetName(), Values: map[string]string{}}
		for _, e := range s.GetExpressionList().GetExpressions() {
			a.List = append(a.List, expressionText(e))
		}
		for _, kv := range s.GetKvPairList().GetKvPairs() {
			a.Values[kv.GetKey()] = expressionText(kv.GetValue())
		}
		out = append(out, a)
	}
	return out
}

func expressionText(e *p4configv1.Expression) string {
	switch v := e.GetValue().(type) {
	case *p4configv1.Expression_StringValue:
		return v.StringValue
	case *p4configv1.Expression_Int64Value:
		return strconv.FormatInt(v.Int64Value, 10)
	case *p4configv1.Expression_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	}
	return ""
}

// parseAnnotation reads "@name", "@name(body)" or "@name[body]".
func parseAnnotation(text string) (Annotation, bool) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "@") {
		return Annotation{}, false
	}
	name, body := text[1:], ""
	if i := strings.IndexAny(name, "(["); i >= 0 {
		name, body = name[:i], strings.TrimRight(name[i+1:], " \t\n)]")
	}
	a := Annotation{Name: strings.TrimSpace(name), Values: map[string]string{}}
	if a.Name == "" {
		return Annotation{}, false
	}
	for _, part := range splitOutsideQuotes(body) {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		if key, value, ok := cutOutsideQuotes(part); ok {
			a.Values[strings.TrimSpace(key)] = unquote(value)
			continue
		}
		// p4c may have joined a whole list in one string: @x("a=1,b=2").
		whole := unquote(part)
		if whole != part && strings.Contains(whole, "=") {
			for _, p := range splitOutsideQuotes(whole) {
				if key, value, ok := cutOutsideQuotes(p); ok {
					a.Values[strings.TrimSpace(key)] = unquote(value)
				}
			}
			continue
		}
		a.List = append(a.List, whole)
	}
	return a, true
}

// splitOutsideQuotes splits at commas that are not in a quoted string.
func splitOutsideQuotes(s string) []string {
	var out []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quoted:
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == ',' && !quoted:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

// cutOutsideQuotes cuts at the first '=' that is not in a quoted string.
func cutOutsideQuotes(s string) (key, value string, ok bool) {
	i := strings.IndexByte(s, '=')
	if i < 0 || strings.Contains(s[:i], `"`) {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

func unquote(s string) string {
	s = strings.TrimSpace(s)
	if u, err := strconv.Unquote(s); err == nil {
		return u
	}
	return s
}

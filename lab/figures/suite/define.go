// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/goccy/go-yaml"
)

// Values are the rows of a page, which expressions of statements look up.
type Values []Row

// Get returns the value of the row with this structure, memory, task and metric; NaN if there is
// no such row.
func (v Values) Get(structure string, memory int, task, metric string) float64 {
	return v.find(func(r *Row) bool {
		return r.Structure == structure && r.Memory == memory && r.Task == task && r.Metric == metric
	})
}

// Variant returns the value of the row with this structure, variant, task and metric; NaN if there
// is no such row.
func (v Values) Variant(structure, variant, task, metric string) float64 {
	return v.find(func(r *Row) bool {
		return r.Structure == structure && r.Variant == variant && r.Task == task && r.Metric == metric
	})
}

func (v Values) find(is func(r *Row) bool) float64 {
	for i := range v {
		if is(&v[i]) {
			return v[i].Value
		}
	}
	return math.NaN()
}

// environment returns what the expressions of a page may use: its definitions, in order, and
//
//	v(structure, memory or variant, task, metric)  the value of a row
//	short(x), text(format, ...)                    x in three digits; fmt.Sprintf
//	most(list), least(list)                        leave out missing values
//	grown(list)                                    the last value present, divided by the first
//	falling(list)                                  whether each value is below the last
func environment(define yaml.MapSlice, rows Values) (map[string]any, error) {
	env := map[string]any{
		"v": func(structure string, at any, task, metric string) float64 {
			if memory, ok := at.(int); ok {
				return rows.Get(structure, memory, task, metric)
			}
			return rows.Variant(structure, fmt.Sprint(at), task, metric)
		},
		"short": func(x any) string { return Short(number(x)) },
		"text":  fmt.Sprintf,
		"most":  func(list []any) float64 { return slices.Max(present(list)) },
		"least": func(list []any) float64 { return slices.Min(present(list)) },
		"grown": func(list []any) float64 {
			values := present(list)
			return values[len(values)-1] / values[0]
		},
		"falling": func(list []any) bool {
			for i := range list[1:] {
				if !(number(list[i+1]) < number(list[i])) {
					return false
				}
			}
			return true
		},
	}
	for _, d := range define {
		name, parameters, isFunction := strings.Cut(fmt.Sprint(d.Key), "(")
		code := fmt.Sprint(d.Value)
		if !isFunction {
			value, err := evaluate(code, env)
			if err != nil {
				return nil, err
			}
			env[name] = value
			continue
		}
		before := maps.Clone(env)
		names := strings.Split(strings.TrimSuffix(parameters, ")"), ", ")
		env[name] = func(arguments ...any) (any, error) {
			if len(arguments) != len(names) {
				return nil, fmt.Errorf("%s has %d parameters, not %d", name, len(names), len(arguments))
			}
			inner := maps.Clone(before)
			for i, n := range names {
				inner[n] = arguments[i]
			}
			return evaluate(code, inner)
		}
	}
	return env, nil
}

func evaluate(code string, env map[string]any) (any, error) {
	value, err := expr.Eval(code, env)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", code, err)
	}
	return value, nil
}

// number converts the numbers of expressions; anything else is a missing value.
func number(x any) float64 {
	switch x := x.(type) {
	case float64:
		return x
	case int:
		return float64(x)
	}
	return math.NaN()
}

// present returns the values of a list that are not missing; NaN if all are.
func present(list []any) []float64 {
	var values []float64
	for _, x := range list {
		if n := number(x); !math.IsNaN(n) {
			values = append(values, n)
		}
	}
	if values == nil {
		return []float64{math.NaN()}
	}
	return values
}

var braces = regexp.MustCompile(`\{(%\S+ )?([^}]*)\}`)

// fill replaces the expressions in braces by their values.
func fill(text string, env map[string]any) (filled string, err error) {
	filled = braces.ReplaceAllStringFunc(text, func(part string) string {
		m := braces.FindStringSubmatch(part)
		value, failed := evaluate(m[2], env)
		if failed != nil {
			err = failed
			return part
		}
		_, isText := value.(string)
		switch {
		case m[1] != "" && math.IsNaN(number(value)):
			return Short(math.NaN())
		case m[1] != "":
			return fmt.Sprintf(strings.TrimSpace(m[1]), value)
		case isText:
			return value.(string)
		}
		return Short(number(value))
	})
	return filled, err
}

// SPDX-License-Identifier: Apache-2.0

// Types of leaves: their values and the kind of their columns.

package yang

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	goyang "github.com/openconfig/goyang/pkg/yang"

	"github.com/netsketch/netsketch/yang/table"
)

// Base is a built-in type of YANG (RFC 7950 section 4.2.4).
type Base uint8

// The built-in types, without leafref: a leafref has the type of its target.
const (
	Int8 Base = iota + 1
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Decimal64
	Boolean
	Empty
	String
	Enumeration
	Identityref
	Binary
	Bits
	InstanceIdentifier
	Union
)

var bases = map[goyang.TypeKind]Base{
	goyang.Yint8: Int8, goyang.Yint16: Int16, goyang.Yint32: Int32, goyang.Yint64: Int64,
	goyang.Yuint8: Uint8, goyang.Yuint16: Uint16, goyang.Yuint32: Uint32, goyang.Yuint64: Uint64,
	goyang.Ydecimal64: Decimal64, goyang.Ybool: Boolean, goyang.Yempty: Empty, goyang.Ystring: String,
	goyang.Yenum: Enumeration, goyang.Yidentityref: Identityref, goyang.Ybinary: Binary,
	goyang.Ybits: Bits, goyang.YinstanceIdentifier: InstanceIdentifier, goyang.Yunion: Union,
}

var baseNames = func() map[Base]string {
	names := map[Base]string{}
	for k, b := range bases {
		names[b] = goyang.TypeKindToName[k]
	}
	return names
}()

// String returns YANG's name of the type.
func (b Base) String() string { return baseNames[b] }

// Type is the type of a leaf, with typedefs and leafrefs resolved.
type Type struct {
	// Name is the name of the type or typedef without prefix, e.g. "counter64".
	Name string
	// Base is the built-in type from which the type is derived.
	Base Base
	// Kind is the kind of the type's columns. A union is Uint64, Int64, Float64 or Bool if all of its
	// members have this kind; otherwise it is String, so that the kind of a leaf never changes.
	Kind table.Kind
	// FractionDigits is the number of digits after the point of a decimal64.
	FractionDigits int
	// Values are the names of an enumeration or of bits, in order, or the identities that an
	// identityref allows, as "module:name", in alphabetical order.
	Values []string
	// Members are the types of a union, in their order.
	Members []*Type

	uints      []bounds[uint64]
	ints       []bounds[int64]
	floats     []bounds[float64]
	lengths    []bounds[uint64]
	patterns   []pattern
	values     map[string]string // maps accepted text to the canonical text
	scale      float64           // 10^FractionDigits
	rangeText  string
	lengthText string
}

type bounds[T uint64 | int64 | float64] struct{ min, max T }

type pattern struct {
	text string
	re   *regexp.Regexp
}

// Wide reports whether RFC 7951 JSON writes the numbers of the type as strings: 64-bit integers and
// decimal64.
func (t *Type) Wide() bool { return t.Base == Int64 || t.Base == Uint64 || t.Base == Decimal64 }

// IsShare reports whether the values are a decimal64 from 0 to 1.
func (t *Type) IsShare() bool {
	return t.Base == Decimal64 && len(t.floats) == 1 && t.floats[0] == bounds[float64]{0, 1}
}

const maxUnionDepth = 16

func (b *builder) compileType(y *goyang.YangType, n *Node, depth int) (*Type, error) {
	if depth > maxUnionDepth {
		return nil, errors.New("unions are nested too deep")
	}
	if y.Kind == goyang.Yleafref { // a member of a union
		target, err := follow(n, y.Path)
		if err != nil {
			return nil, fmt.Errorf("leafref path %q: %w", y.Path, err)
		}
		if target.Leaf.Type == nil {
			return nil, fmt.Errorf("leafref path %q in a union leads to a leafref", y.Path)
		}
		return target.Leaf.Type, nil
	}
	t := &Type{Name: y.Name, Base: bases[y.Kind], Kind: table.String}
	if t.Base == 0 {
		return nil, fmt.Errorf("type %s is not supported", y.Name)
	}
	switch {
	case t.Base <= Int64:
		t.Kind = table.Int64
		for _, r := range y.Range {
			t.ints = append(t.ints, bounds[int64]{signed(r.Min), signed(r.Max)})
		}
		t.rangeText = y.Range.String()
	case t.Base <= Uint64:
		t.Kind = table.Uint64
		for _, r := range y.Range {
			t.uints = append(t.uints, bounds[uint64]{r.Min.Value, r.Max.Value})
		}
		t.rangeText = y.Range.String()
	case t.Base == Decimal64:
		t.Kind = table.Float64
		t.setDigits(y.FractionDigits)
		for _, r := range y.Range {
			t.floats = append(t.floats, bounds[float64]{decimal(r.Min), decimal(r.Max)})
		}
		t.rangeText = y.Range.String()
	case t.Base == Boolean || t.Base == Empty:
		t.Kind = table.Bool
	case t.Base == String || t.Base == Binary:
		for _, r := range y.Length {
			t.lengths = append(t.lengths, bounds[uint64]{r.Min.Value, r.Max.Value})
		}
		t.lengthText = y.Length.String()
		if err := b.patterns(t, y); err != nil {
			return nil, err
		}
	case t.Base == Enumeration:
		t.setValues(enumNames(y.Enum))
	case t.Base == Bits:
		t.setValues(enumNames(y.Bit))
	case t.Base == Identityref:
		if y.IdentityBase == nil {
			return nil, errors.New("an identityref without a base")
		}
		var names []string
		for _, id := range y.IdentityBase.Values {
			names = append(names, goyang.RootNode(id).Name+":"+id.Name)
		}
		t.setIdentities(names)
	case t.Base == Union:
		if len(y.Type) == 0 {
			return nil, errors.New("a union without member types")
		}
		for i, m := range y.Type {
			member, err := b.compileType(m, n, depth+1)
			if err != nil {
				return nil, err
			}
			t.Members = append(t.Members, member)
			if i == 0 {
				t.Kind = member.Kind
			} else if t.Kind != member.Kind {
				t.Kind = table.String
			}
		}
	}
	return t, nil
}

// setDigits sets the digits of a decimal64.
func (t *Type) setDigits(n int) {
	t.FractionDigits = n
	t.scale = math.Pow10(n)
}

// setIdentities sets the values of an identityref, "module:name". They may be written without the
// module.
func (t *Type) setIdentities(names []string) {
	t.Values = slices.Sorted(slices.Values(names))
	t.values = map[string]string{}
	for _, full := range names {
		_, name, _ := strings.Cut(full, ":")
		t.values[full] = full
		t.values[name] = full
	}
}

func (t *Type) setValues(names []string) {
	t.Values = names
	t.values = make(map[string]string, len(names))
	for _, n := range names {
		t.values[n] = n
	}
}

func enumNames(e *goyang.EnumType) []string {
	if e == nil {
		return nil
	}
	names := e.Names()
	slices.SortFunc(names, func(a, b string) int {
		return int(max(-1, min(1, e.Value(a)-e.Value(b))))
	})
	return names
}

func signed(n goyang.Number) int64 {
	if n.Negative {
		return int64(-n.Value)
	}
	return int64(min(n.Value, math.MaxInt64))
}

func decimal(n goyang.Number) float64 {
	f := float64(n.Value) / math.Pow10(int(n.FractionDigits))
	if n.Negative {
		return -f
	}
	return f
}

// maxProgram bounds a compiled pattern and thus the cost of matching.
const maxProgram = 5000

func (b *builder) patterns(t *Type, y *goyang.YangType) error {
	add := func(text, expr string, flags syntax.Flags) error {
		if p, ok := b.regexps[expr]; ok {
			t.patterns = append(t.patterns, p)
			return nil
		}
		tree, err := syntax.Parse(expr, flags)
		if err != nil {
			return fmt.Errorf("pattern %q: %w", text, err)
		}
		prog, err := syntax.Compile(tree.Simplify())
		if err != nil {
			return fmt.Errorf("pattern %q: %w", text, err)
		}
		if len(prog.Inst) > maxProgram {
			return fmt.Errorf("pattern %q is too large", text)
		}
		re, err := regexp.Compile(expr)
		if err != nil {
			return fmt.Errorf("pattern %q: %w", text, err)
		}
		p := pattern{text, re}
		b.regexps[expr] = p
		t.patterns = append(t.patterns, p)
		return nil
	}
	if len(y.POSIXPattern) > 0 {
		for _, p := range y.POSIXPattern {
			if err := add(p, p, syntax.Perl); err != nil {
				return err
			}
		}
		return nil
	}
	for _, p := range y.Pattern {
		if err := add(p, goPattern(p), syntax.Perl); err != nil {
			return err
		}
	}
	return nil
}

// goPattern converts an XML Schema regular expression to Go's syntax. The expression matches the
// whole value, and ^ and $ are literals outside of classes. Anchors around a pattern, as in early
// OpenConfig modules, are removed.
func goPattern(p string) string {
	if strings.HasPrefix(p, "^") && strings.HasSuffix(p, "$") && !strings.HasSuffix(p, `\$`) {
		p = p[1 : len(p)-1]
	}
	var out strings.Builder
	out.WriteString(`\A(?:`)
	escaped, class := false, false
	for i, r := range p {
		switch {
		case escaped:
			escaped = false
		case r == '\\':
			escaped = true
		case class:
			class = r != ']'
		case r == '[':
			class = true
		case r == '$':
			out.WriteByte('\\')
		case r == '^' && (i == 0 || p[i-1] != '['):
			out.WriteByte('\\')
		}
		out.WriteRune(r)
	}
	out.WriteString(`)\z`)
	return out.String()
}

// CheckText reports why a text is not a value of the type in YANG's lexical form. It validates keys
// in paths and cells of String columns.
func (t *Type) CheckText(s string) error {
	switch {
	case t.Base <= Int64:
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Errorf("is not an %s", t.Base)
		}
		return t.checkInt(v)
	case t.Base <= Uint64:
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("is not a %s", t.Base)
		}
		return t.checkUint(v)
	case t.Base == Decimal64:
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || strings.ContainsAny(s, "eExXpP_") {
			return errors.New("is not a decimal64")
		}
		return t.checkFloat(v)
	case t.Base == Boolean:
		if s != "true" && s != "false" {
			return errors.New("is neither true nor false")
		}
		return nil
	case t.Base == Enumeration || t.Base == Identityref:
		if _, ok := t.values[s]; !ok {
			return fmt.Errorf("is not one of %s", short(t.Values))
		}
		return nil
	case t.Base == Bits:
		for bit := range strings.FieldsSeq(s) {
			if _, ok := t.values[bit]; !ok {
				return fmt.Errorf("has the bit %q, which is not one of %s", bit, short(t.Values))
			}
		}
		return nil
	case t.Base == Union:
		for _, m := range t.Members {
			if m.CheckText(s) == nil {
				return nil
			}
		}
		return errors.New("is a value of none of the union's types")
	}
	return t.checkString(s)
}

func short(values []string) string {
	if len(values) > 12 {
		return fmt.Sprintf("%s … (%d values)", strings.Join(values[:12], ", "), len(values))
	}
	return strings.Join(values, ", ")
}

func (t *Type) checkString(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("is not UTF-8")
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' && c != '\n' && c != '\r' {
			return fmt.Errorf("has the control character %#x, which a YANG string cannot contain", c)
		}
	}
	if len(t.lengths) > 0 {
		n := uint64(utf8.RuneCountInString(s))
		if !within(t.lengths, n) {
			return fmt.Errorf("has the length %d, allowed is %s", n, t.lengthText)
		}
	}
	for _, p := range t.patterns {
		if !p.re.MatchString(s) {
			return fmt.Errorf("does not match the pattern %s", p.text)
		}
	}
	return nil
}

func (t *Type) checkUint(v uint64) error {
	if t.Base == Union {
		return t.checkMembers(func(m *Type) error { return m.checkUint(v) })
	}
	if len(t.uints) > 0 && !within(t.uints, v) {
		return fmt.Errorf("is outside of %s", t.rangeText)
	}
	return nil
}

func (t *Type) checkInt(v int64) error {
	if t.Base == Union {
		return t.checkMembers(func(m *Type) error { return m.checkInt(v) })
	}
	if len(t.ints) > 0 && !within(t.ints, v) {
		return fmt.Errorf("is outside of %s", t.rangeText)
	}
	return nil
}

// checkFloat is the only check of decimals, for results, the collector's own tables and devices'
// values.
func (t *Type) checkFloat(v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return errors.New("is not a finite number; a row without a value has null")
	}
	if t.Base == Union {
		return t.checkMembers(func(m *Type) error { return m.checkFloat(v) })
	}
	if math.Abs(v)*t.scale >= math.MaxInt64 {
		return fmt.Errorf("is too large for a decimal64 with %d fraction digits", t.FractionDigits)
	}
	if v*t.scale < 1<<53 && v*t.scale > -1<<53 {
		v = math.Round(v*t.scale) / t.scale // published values are rounded
	}
	if len(t.floats) > 0 && !within(t.floats, v) {
		return fmt.Errorf("is outside of %s", t.rangeText)
	}
	return nil
}

func (t *Type) checkMembers(check func(*Type) error) error {
	for _, m := range t.Members {
		if check(m) == nil {
			return nil
		}
	}
	return errors.New("is a value of none of the union's types")
}

func within[T uint64 | int64 | float64](b []bounds[T], v T) bool {
	for _, r := range b {
		if v >= r.min && v <= r.max {
			return true
		}
	}
	return false
}

// Qualify returns the canonical text of a value: an identity preceded by its module, as in RFC 7951
// JSON, and any other value unchanged.
func (t *Type) Qualify(s string) string {
	switch t.Base {
	case Identityref:
		if full, ok := t.values[s]; ok {
			return full
		}
	case Union:
		for _, m := range t.Members {
			if m.CheckText(s) == nil {
				return m.Qualify(s)
			}
		}
	}
	return s
}

// AppendDecimal appends v as a decimal64 with the given number of fraction digits in canonical form
// (RFC 7950 section 9.3.2): rounded, without trailing zeros, at least one digit after the point.
func AppendDecimal(b []byte, v float64, fractionDigits int) []byte {
	start := len(b)
	b = strconv.AppendFloat(b, v, 'f', max(fractionDigits, 1), 64)
	end := len(b)
	for b[end-1] == '0' && b[end-2] != '.' {
		end--
	}
	b = b[:end]
	if string(b[start:]) == "-0.0" {
		b = append(b[:start], "0.0"...)
	}
	return b
}

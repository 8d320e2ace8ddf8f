// SPDX-License-Identifier: Apache-2.0

package yang

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// TestAgainstOpenConfig compares SwitchModules with OpenConfig's own modules, which are not part
// of this repository: set OPENCONFIG_YANG to a checkout of github.com/openconfig/public. Each leaf
// of SwitchModules must exist at the same path in OpenConfig's modules, be configuration in both
// or state in both, and allow there all values that SwitchModules allows.
func TestAgainstOpenConfig(t *testing.T) {
	dir := os.Getenv("OPENCONFIG_YANG")
	if dir == "" {
		t.Skip("OPENCONFIG_YANG names no checkout of github.com/openconfig/public; docs/yang.md says which " +
			"revision was last compared with")
	}
	theirs := goyang.NewModules()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".yang") {
			theirs.AddPath(filepath.Dir(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"openconfig-interfaces", "openconfig-if-ethernet", "openconfig-p4rt",
		"openconfig-lldp", "openconfig-platform", "openconfig-platform-port", "openconfig-system"} {
		if err := theirs.Read(name); err != nil {
			t.Fatal(err)
		}
	}
	ours := goyang.NewModules()
	for _, m := range SwitchModules() {
		if err := ours.Parse(m.Text, m.Name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range BundledNames() { // the modules that SwitchModules imports
		m, err := Bundled(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, parsed := ours.Modules[name]; !parsed {
			if err := ours.Parse(m[0].Text, m[0].Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, ms := range []*goyang.Modules{ours, theirs} {
		if errs := ms.Process(); len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	n := 0
	for module, served := range map[string]string{
		"openconfig-interfaces": "openconfig-interfaces", "netsketch-lldp": "openconfig-lldp",
		"netsketch-platform": "openconfig-platform", "netsketch-system": "openconfig-system",
	} {
		a, b := goyang.ToEntry(ours.Modules[module]), goyang.ToEntry(theirs.Modules[served])
		n += compareTrees(t, a, b)
	}
	if n < 100 {
		t.Errorf("only %d leaves were compared", n)
	}
	t.Logf("%d leaves are in OpenConfig's modules", n)
}

// older lists leaves of the bundled openconfig-interfaces and openconfig-if-ethernet that
// OpenConfig has since changed. The switch serves only last-change of them.
var older = []string{
	"interface/state/last-change", "subinterface/state/last-change", "counters/last-clear",
	"counters/in-unknown-protos",
	"ethernet/state/effective-speed", "subinterface/config/name",
}

func isOlder(e *goyang.Entry) bool {
	return slices.ContainsFunc(older, func(path string) bool {
		return strings.HasPrefix(e.Path(), "/openconfig-interfaces/") && strings.HasSuffix(e.Path(), path)
	})
}

// compareTrees compares the subtrees of two nodes and returns the number of leaves.
func compareTrees(t *testing.T, a, b *goyang.Entry) (leaves int) {
	t.Helper()
	for name, child := range a.Dir {
		other := b.Dir[name]
		switch {
		case child.Kind == goyang.NotificationEntry || child.RPC != nil || isOlder(child):
		case other == nil:
			t.Errorf("%s is not in OpenConfig's module", child.Path())
		case child.IsDir() != other.IsDir() || child.IsList() != other.IsList() ||
			child.IsLeafList() != other.IsLeafList() || child.Key != other.Key:
			t.Errorf("%s is of another kind, or has another key, in OpenConfig's module", child.Path())
		case child.IsDir():
			leaves += compareTrees(t, child, other)
		default:
			leaves++
			if child.ReadOnly() != other.ReadOnly() {
				t.Errorf("%s: read-only %v, OpenConfig %v", child.Path(), child.ReadOnly(), other.ReadOnly())
			}
			if why := fits(child, child.Type, other, other.Type); why != "" {
				t.Errorf("%s: %s", child.Path(), why)
			}
		}
	}
	return leaves
}

// fits reports why a type allows values that another type does not; "" if there are no such
// values.
func fits(ea *goyang.Entry, a *goyang.YangType, eb *goyang.Entry, b *goyang.YangType) string {
	ea, a = resolved(ea, a)
	eb, b = resolved(eb, b)
	if all := names(b); len(all) > 0 && len(names(a)) > 0 {
		for _, n := range names(a) {
			if !slices.Contains(all, n) {
				return fmt.Sprintf("has %q, which OpenConfig's has not: %v", n, all)
			}
		}
		return ""
	}
	if b.Kind == goyang.Yunion {
		var whys []string
		for _, m := range b.Type {
			why := fits(ea, a, eb, m)
			if why == "" {
				return ""
			}
			whys = append(whys, why)
		}
		return "fits no member of the union: " + strings.Join(whys, "; ")
	}
	if a.Kind == goyang.Yunion {
		for _, m := range a.Type {
			if why := fits(ea, m, eb, b); why != "" {
				return why
			}
		}
		return ""
	}
	if a.Kind != b.Kind {
		return fmt.Sprintf("is %v, OpenConfig's %v", a.Kind, b.Kind)
	}
	if a.Kind == goyang.Ydecimal64 && a.FractionDigits != b.FractionDigits {
		return fmt.Sprintf("has %d fraction digits, OpenConfig's %d", a.FractionDigits, b.FractionDigits)
	}
	if len(b.Range) > 0 && !b.Range.Contains(a.Range) {
		return fmt.Sprintf("takes %v, OpenConfig's %v", a.Range, b.Range)
	}
	return ""
}

// resolved follows leafrefs.
func resolved(e *goyang.Entry, typ *goyang.YangType) (*goyang.Entry, *goyang.YangType) {
	for range 8 {
		if typ.Kind != goyang.Yleafref {
			break
		}
		to := e.Find(typ.Path)
		if to == nil || to.Type == nil {
			break
		}
		e, typ = to, to.Type
	}
	return e, typ
}

// names returns the values of enumerations and identities; for a union, the values of all its
// members.
func names(t *goyang.YangType) (out []string) {
	if t.Kind == goyang.Yenum {
		return t.Enum.Names()
	}
	for _, m := range t.Type {
		out = append(out, names(m)...)
	}
	if t.IdentityBase != nil {
		for _, v := range t.IdentityBase.Values {
			out = append(out, v.Name)
		}
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMarkToDropOnCopy: mark_to_drop writes to its argument. In an action with an inout parameter,
// the argument is a copy of the standard metadata, and the drop takes effect only if the copy is
// copied back.
func TestMarkToDropOnCopy(t *testing.T) {
	t.Parallel()
	header := func(name string) object { return object{"type": "header", "value": name} }
	copied := func(to, from string) object {
		return object{"op": "assign_header", "parameters": []any{header(to), header(from)}}
	}
	mark := object{"op": "mark_to_drop", "parameters": []any{header("copy")}}
	for name, tc := range map[string]struct {
		statements []any
		leaves     bool
	}{
		"copied back": {[]any{copied("copy", "standard_metadata"), mark, copied("standard_metadata", "copy")}, false},
		"not copied":  {[]any{copied("copy", "standard_metadata"), mark}, true},
		"overwritten": {[]any{mark, copied("copy", "standard_metadata"), copied("standard_metadata", "copy")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sw := New(Config{})
			defer sw.Close()
			p, err := Compile(loopsWith(t, tc.statements))
			if err != nil {
				t.Fatal(err)
			}
			if err := sw.Load(p); err != nil {
				t.Fatal(err)
			}
			left := 0
			_ = sw.AddPort(0, Port{})
			_ = sw.AddPort(1, Port{Tx: func([]byte, time.Duration) { left++ }})
			const opDrop = 2 // of loops.p4
			sw.Inject(0, []byte{opDrop, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0)
			if (left > 0) != tc.leaves {
				t.Errorf("%d packets left, expected one: %v", left, tc.leaves)
			}
		})
	}
	_, err := Compile(loopsWith(t, []any{object{"op": "mark_to_drop", "parameters": []any{header("x")}}}))
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "takes standard metadata") {
		t.Errorf("mark_to_drop on a packet header: %v", err)
	}
}

// loopsWith returns loops.json with another header of standard metadata, "copy", and with other
// statements instead of mark_to_drop in ingress.
func loopsWith(t *testing.T, statements []any) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "loops.json"))
	if err != nil {
		t.Fatal(err)
	}
	var tree object
	if err := json.Unmarshal(b, &tree); err != nil {
		t.Fatal(err)
	}
	tree["headers"] = append(items(tree, "headers"), object{"name": "copy", "id": 99,
		"header_type": "standard_metadata", "metadata": true})
	replaced := false
	for _, a := range items(tree, "actions") {
		p := items(a, "primitives")
		if len(p) == 1 && p[0].(object)["op"] == "mark_to_drop" && !replaced {
			a.(object)["primitives"], replaced = statements, true
		}
	}
	if !replaced {
		t.Fatal("loops.json has no action that only calls mark_to_drop")
	}
	out, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

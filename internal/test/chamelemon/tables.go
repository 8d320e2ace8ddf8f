// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"fmt"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// apply writes an entry to the model of the program's tables. It returns an error for entries that
// the pipeline would accept but that are invalid: a part beyond its array, or unordered thresholds.
func (e *edge) apply(w *sdk.DeviceWrite) error {
	match, params := make(map[string]uint64), make(map[string]uint64)
	for _, m := range w.Entry.Matches {
		match[m.Field] = value(m.Value)
	}
	for _, p := range w.Entry.Params {
		params[p.Name] = value(p.Value)
	}
	if w.Op != sdk.Insert {
		return fmt.Errorf("%s: table %s: a write of kind %d; the model supports insertions", e.name, w.Entry.Table,
			w.Op)
	}
	if match["time"] > 1 || match["hierarchy"] >= codes {
		return fmt.Errorf("%s: table %s: time %d, hierarchy %d", e.name, w.Entry.Table, match["time"],
			match["hierarchy"])
	}
	s := &e.set[match["time"]]
	name, six := strings.CutSuffix(w.Entry.Table, "_ipv6")
	f := 0
	if six {
		f = 1
	}
	switch name {
	case "ingress.chamelemon.entry_port", "egress.chamelemon.exit_port":
		e.ports[fmt.Sprint(name, " ", match["port"])] = true
	case "ingress.chamelemon.thresholds":
		s.Th, s.Tl, s.Sample = uint32(params["th"]), uint32(params["tl"]), uint32(params["sample"])
		s.Seed = uint32(params["seed"])
		if s.Tl < 1 || s.Tl > s.Th || params["sample"] > 1<<16 || s.Seed%2 == 0 {
			return fmt.Errorf("%s: Tl %d, Th %d, sample %d, seed %d", e.name, s.Tl, s.Th, params["sample"], s.Seed)
		}
	case "ingress.chamelemon.division", "egress.chamelemon.division":
		parts, size := &s.Up, e.shape.Up[f]
		if strings.HasPrefix(name, "egress") {
			parts, size = &s.Down, e.shape.Down[f]
		}
		part := Span{int(params["first"]), int(params["buckets"])}
		if part.Buckets < 1 || part.First+part.Buckets > size {
			return fmt.Errorf("%s: table %s: part %+v is not within %d buckets", e.name, w.Entry.Table, part, size)
		}
		parts[f][match["hierarchy"]] = part
	default:
		return fmt.Errorf("%s: no table %s", e.name, w.Entry.Table)
	}
	return nil
}

func value(b []byte) (v uint64) {
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v
}

// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/binary"
	"slices"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// Hierarchies as the data plane numbers them.
const (
	codeLL = 1
	codeHL = 2
	codeHH = 3
)

// Suffixes of tables and actions by family.
var suffixes = [families]string{"", "_ipv6"}

// number is a value of a match field or parameter.
func number(v uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, v)
	i := slices.IndexFunc(b, func(x byte) bool { return x != 0 })
	if i < 0 {
		return []byte{0}
	}
	return b[i:]
}

func match(field string, v uint64) sdk.FieldMatch {
	return sdk.FieldMatch{Field: field, Value: number(v), PrefixLen: -1}
}

func param(name string, v uint64) sdk.ActionParam {
	return sdk.ActionParam{Name: name, Value: number(v)}
}

// portWrites are the entries for the ports at which packets enter and leave the network. Where a
// mark would not come to an edge switch that removes it, packets get none.
func portWrites(e *edge, marked bool) (writes []sdk.DeviceWrite) {
	enter, leave := "ingress.chamelemon.from_host", "egress.chamelemon.to_host"
	if !marked {
		enter, leave = "ingress.chamelemon.measure", "egress.chamelemon.keep"
	}
	for _, p := range e.ports {
		for _, t := range [][2]string{{"ingress.chamelemon.entry_port", enter}, {"egress.chamelemon.exit_port", leave}} {
			writes = append(writes, sdk.DeviceWrite{Device: e.name, Op: sdk.Insert, Entry: sdk.TableEntry{
				Table: t[0], Matches: []sdk.FieldMatch{match("port", uint64(p))}, Action: t[1],
			}})
		}
	}
	return writes
}

// writes returns the entries of an attention for one switch and one time bit. All are inserts; the
// collector modifies entries that exist. Entries of a part without buckets stay, because no flow
// has that hierarchy then: with Tl 1 no flow is an LL candidate.
func (a *Attention) writes(e *edge, room *[families]Room, bit uint64) []sdk.DeviceWrite {
	out := []sdk.DeviceWrite{{Device: e.name, Op: sdk.Insert, Entry: sdk.TableEntry{
		Table: "ingress.chamelemon.thresholds", Matches: []sdk.FieldMatch{match("time", bit)},
		Action: "ingress.chamelemon.classify",
		Params: []sdk.ActionParam{param("th", uint64(a.Th[e.name])), param("tl", uint64(a.Tl)),
			param("sample", uint64(a.Sample)), param("seed", uint64(a.Seed))},
	}}}
	for f := range families {
		if e.up[f] == "" {
			continue
		}
		p := a.Parts[f]
		first := 0
		for i, buckets := range []int{p.LL, p.HL, a.hitters(f, room)} {
			code := uint64(codeLL + i)
			if buckets > 0 {
				for _, side := range []string{"ingress", "egress"} {
					if side == "egress" && code == codeHH {
						continue // counted as HL at the exit
					}
					out = append(out, sdk.DeviceWrite{Device: e.name, Op: sdk.Insert, Entry: sdk.TableEntry{
						Table:   side + ".chamelemon.division" + suffixes[f],
						Matches: []sdk.FieldMatch{match("time", bit), match("hierarchy", code)},
						Action:  side + ".chamelemon.encode" + suffixes[f],
						Params:  []sdk.ActionParam{param("first", uint64(first)), param("buckets", uint64(buckets))},
					}})
				}
			}
			first += buckets
		}
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/settings"
)

// program is the beginning of the names of LightGuardian's programs.
const program = "lightguardian"

// banks is the count of interval numbers that a switch distinguishes.
const banks = 256

// defaultMTU is the MTU of a port without an entry.
const defaultMTU = 1500

// sends reports whether a switch runs a program of LightGuardian: the plugin writes its tables.
func sends(d *sdk.Device) bool { return strings.HasPrefix(d.Program, program) }

// devices returns the names of the switches that send sketchlets, sorted.
func devices(model *sdk.Network) (names []string) {
	for i := range model.Devices {
		if sends(&model.Devices[i]) {
			names = append(names, model.Devices[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// annotation is the name of the annotation of the sketch in programs.
const annotation = "netsketch_lightguardian"

// differs returns the keys that contradict the programs of switches, and the switches whose program
// does not say how it was compiled. Sketchlets of another shape would be read wrongly.
func (c *Configuration) differs(model *sdk.Network) (unknown []string, _ error) {
	var errs settings.KeyErrors
	k := &c.Sketch
	flag := map[bool]int{true: 1}
	for i := range model.Devices {
		d := &model.Devices[i]
		if !sends(d) {
			continue
		}
		at := slices.IndexFunc(d.Unread, func(o sdk.Object) bool { return o.Annotations[annotation] != nil })
		if at < 0 {
			unknown = append(unknown, d.Name)
			continue
		}
		var has struct {
			Rows    int `key:"rows"`
			Columns int `key:"columns"`
			Delays  int `key:"delays"`
			Sizes   int `key:"sizes"`
			Gaps    int `key:"gaps"`
			Chances int `key:"chances"`
		}
		if err := d.Unread[at].Layout(annotation, &has); err != nil {
			return nil, fmt.Errorf("program %s of switch %s: %w", d.Program, d.Name, err)
		}
		for _, x := range []struct {
			key, macro   string
			value        any
			set, program int
			expected     string
		}{
			{"sketch.rows", "ROWS", k.Rows, k.Rows, has.Rows, strconv.Itoa(has.Rows)},
			{"sketch.columns", "COLUMNS", k.Columns, k.Columns, has.Columns, strconv.Itoa(has.Columns)},
			{"sketch.delays", "DELAYS", k.Delays, len(k.Delays) + 1, has.Delays, fmt.Sprintf("%d delays", has.Delays-1)},
			{"sketch.sizes", "SIZES", k.Sizes, flag[k.Sizes], has.Sizes, strconv.FormatBool(has.Sizes > 0)},
			{"sketch.gaps", "GAPS", k.Gaps, flag[k.Gaps], has.Gaps, strconv.FormatBool(has.Gaps > 0)},
			{"chances", "CHANCES", c.Chances, max(c.Chances, has.Chances), has.Chances,
				fmt.Sprintf("at most %d", has.Chances)},
		} {
			said := slices.ContainsFunc(errs, func(e settings.KeyError) bool { return e.Key == x.key })
			if x.set != x.program && !said {
				errs.Add(x.key, "%v does not fit program %s of switch %s, compiled with NS_LIGHTGUARDIAN_%s=%d; expected %s, "+
					"or all switches with a program compiled with %d", x.value, d.Program, d.Name, x.macro, x.program, x.expected,
					x.set)
			}
		}
	}
	return unknown, errs.Err()
}

// assign returns the device ids of switches: the given ids, the earlier ids, and for other switches
// the lowest free ids, in the order of names. A switch that has left keeps its id while free ids
// remain, so that its last sketchlets are not taken for another switch's.
func assign(c *Configuration, model *sdk.Network, known map[string]uint16) (map[string]uint16, error) {
	out, taken := map[string]uint16{}, map[uint16]bool{}
	given := map[string]uint16{}
	for _, d := range c.Devices {
		given[d.Name], taken[d.ID] = d.ID, true
	}
	names := devices(model)
	for name, id := range known {
		if _, present := slices.BinarySearch(names, name); !taken[id] && (present || len(known) < math.MaxUint16) {
			out[name], taken[id] = id, true
		}
	}
	next := uint16(1)
	for _, name := range names {
		if id, ok := given[name]; ok {
			out[name] = id
			continue
		}
		if out[name] > 0 {
			continue
		}
		for taken[next] {
			if next == math.MaxUint16 {
				return nil, fmt.Errorf("switch %s: all %d device ids are in use", name, math.MaxUint16)
			}
			next++
		}
		out[name], taken[next] = next, true
	}
	return out, nil
}

// entries returns the entries of all switches, grouped by switch.
func (s *setup) entries(model *sdk.Network) (out []sdk.DeviceWrite) {
	// Sketchlets end where a switch of another program or a host without an agent would receive them:
	// these count their bytes, or pass them to an application.
	removes := func(name string) bool { return s.owns(name) || slices.Contains(s.hosts, name) }
	cabling := model.Cabling()
	for _, name := range s.own {
		write := func(op sdk.WriteOp, e sdk.TableEntry) {
			out = append(out, sdk.DeviceWrite{Device: name, Op: op, Entry: e})
		}
		for _, e := range s.defaults(name) {
			write(sdk.SetDefault, e)
		}
		var others []string
		ports := map[uint32]bool{}
		for _, p := range model.Device(name).Ports {
			ports[p.Number] = true
		}
		for port := range cabling.Ends[name] {
			ports[port] = true
		}
		for _, port := range slices.Sorted(maps.Keys(ports)) {
			if s.config.MTU != defaultMTU {
				write(sdk.Insert, portEntry("mtu", port, "set_mtu", number("bytes", s.config.MTU, 2)))
			}
			beyond := cabling.Beyond(name, port)
			foreign := slices.DeleteFunc(slices.Clone(beyond), removes)
			if len(beyond) == 0 || len(foreign) > 0 {
				write(sdk.Insert, portEntry("strip", port, "remove"))
			}
			if cabling.Ends[cabling.Ends[name][port]] != nil {
				others = append(others, foreign...)
			}
		}
		if len(others) > 0 {
			slices.Sort(others)
			s.settings.Missing = append(s.settings.Missing, sdk.MissingObject{Device: name, Object: "program " + program,
				Consequence: "sketchlets end at this switch in packets that leave by ports to " +
					strings.Join(slices.Compact(others), ", ") + ", which would not remove them"})
		}
	}
	return out
}

// defaults returns the entries of tables without keys of a switch.
func (s *setup) defaults(name string) []sdk.TableEntry {
	var limits []sdk.ActionParam
	for i, d := range s.config.Sketch.micros() {
		limits = append(limits, number(fmt.Sprintf("limit%d", i+1), d, 4))
	}
	return []sdk.TableEntry{
		s.carryEntry(name),
		{Table: "ingress.lightguardian.clock", Action: "ingress.lightguardian.set_clock",
			Params: []sdk.ActionParam{number("unit", s.config.unit(), 1)}},
		{Table: "egress.lightguardian.delays", Action: "egress.lightguardian.set_delays", Params: limits},
	}
}

// portEntry is an entry for the packets that leave by a port.
func portEntry(table string, port uint32, action string, params ...sdk.ActionParam) sdk.TableEntry {
	return sdk.TableEntry{Table: "egress.lightguardian." + table, Action: "egress.lightguardian." + action, Params: params,
		Matches: []sdk.FieldMatch{{Field: "port", Value: bigEndian(port, 2), PrefixLen: -1}}}
}

func number[T ~int | ~uint16 | ~uint32](name string, v T, bytes int) sdk.ActionParam {
	return sdk.ActionParam{Name: name, Value: bigEndian(v, bytes)}
}

func bigEndian[T ~int | ~uint16 | ~uint32](v T, bytes int) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(v))[4-bytes:]
}

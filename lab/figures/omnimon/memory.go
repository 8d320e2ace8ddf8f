// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
)

// form describes a compiled program by its BMv2 JSON.
type form struct {
	total  int // bytes of all registers
	bank   int // bytes of the slots, port counters and uncounted packets of an epoch
	slots  int // slots of a program with all units and one array
	header int // bytes of OmniMon's header
}

// Constants of the default program that its JSON does not have: words of a slot, and cells of port
// counters.
const banks, words, portCells = 4, 12, 1024

// formOf reads a program of OmniMon.
func formOf(program []byte) (f form, err error) {
	var p struct {
		Registers []struct {
			Name           string
			Size, Bitwidth int
		} `json:"register_arrays"`
		Types []struct {
			Name   string
			Fields [][]any
		} `json:"header_types"`
	}
	if err := json.Unmarshal(program, &p); err != nil {
		return f, err
	}
	for _, r := range p.Registers {
		f.total += r.Size * r.Bitwidth / 8
		if r.Name == "omnimon_counts" {
			f.slots = (r.Size/banks - portCells) / words
		}
	}
	f.bank = f.total / banks
	for _, t := range p.Types {
		if t.Name != "shim_t" { // header shim_t has OmniMon's fields and the payload's EtherType
			continue
		}
		for _, field := range t.Fields {
			if width, ok := field[1].(float64); ok && field[0] != "ether_type" {
				f.header += int(width)
			}
		}
	}
	f.header /= 8
	if f.total == 0 || f.header == 0 {
		return f, errors.New("the program has no registers or no header of OmniMon")
	}
	return f, nil
}

// compile compiles omnimon.p4 with parameters.
func compile(ctx context.Context, parameters ...string) (f form, err error) {
	directory, err := os.MkdirTemp("", "omnimon-*")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	out := filepath.Join(directory, "omnimon.json")
	arguments := append(parameters, "--std", "p4-16", "-I", programs, "-o", out, filepath.Join(programs, "omnimon.p4"))
	text, err := exec.CommandContext(ctx, "p4c-bm2-ss", arguments...).CombinedOutput()
	if err != nil {
		return f, fmt.Errorf("p4c-bm2-ss: %w: it must be on the PATH\n%s", err, text)
	}
	program, err := os.ReadFile(out)
	if err != nil {
		return f, err
	}
	return formOf(program)
}

// Sizes of Exp#2 and Exp#7: slots of an epoch, in a program without units of queries.
const memorySlots = 3072

// The two ways to hold the d slots of a flow.
const byHop, apart = "one array, slot by hop", "an array for each slot"

// memory measures the registers of programs that map a flow to d slots. With the optimization a
// packet updates one slot, so one array serves all; without it each of the d slots has its own.
func memory(ctx context.Context) (rows []suite.Row, err error) {
	for d := 1; d <= 4; d++ {
		for _, s := range []struct {
			name   string
			arrays int
		}{{byHop, 1}, {apart, d}} {
			if s.arrays == 3 {
				continue // the program's arrays are a power of two
			}
			f, err := compile(ctx, "-DNS_OMNIMON_UNITS=0", "-DNS_OMNIMON_QUEUE_UNITS=0",
				fmt.Sprintf("-DNS_OMNIMON_SLOTS=%d", memorySlots),
				fmt.Sprintf("-DNS_OMNIMON_SLOTS_PER_FLOW=%d", d), fmt.Sprintf("-DNS_OMNIMON_ARRAYS=%d", s.arrays))
			if err != nil {
				return nil, err
			}
			row := func(metric string, value int, unit string) {
				rows = append(rows, suite.Row{Structure: s.name, Variant: fmt.Sprintf("d %d", d), Task: "switch", Metric: metric,
					Value: float64(value), Unit: unit})
			}
			row("registers", f.total, "bytes")
			row("header", f.header, "bytes")
		}
	}
	return append(rows, mappingSlots()...), nil
}

// mappingSlots is the least count of slots that have a mapping for each of 10^6 flows.
func mappingSlots() (rows []suite.Row) {
	const flows = 1_000_000
	for d := 1; d <= 4; d++ {
		rows = append(rows, suite.Row{Structure: byHop, Variant: fmt.Sprintf("d %d", d), Task: "switch",
			Metric: "slots for 10^6 flows", Value: float64(slotsFor(flows, d))})
	}
	return rows
}

// slotsFor returns the least number of slots that gives each flow d slots, with no two flows alike.
func slotsFor(flows, d int) (k int) {
	mappings := 1
	for k = d; mappings < flows; k++ {
		mappings = mappings * (k + 1) / (k + 1 - d) // C(k+1, d) from C(k, d)
	}
	return k
}

func memoryFigure() suite.Suite {
	return suite.New(suite.Suite{
		Name:    "omnimon-14",
		Measure: func(ctx context.Context, _ *trace.Trace, _ suite.Options) ([]suite.Row, error) { return memory(ctx) },
	})
}

// SPDX-License-Identifier: Apache-2.0

// A program whose drop is in a copy of the standard metadata.

package faults

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/netsketch/netsketch/internal/pcapfile"
)

// droppingProgram is loops.json, in which p4c has compiled mark_to_drop(s) of an action with an
// inout parameter s: a copy, mark_to_drop of the copy, and a copy back.
func droppingProgram() ([]byte, error) {
	b, err := os.ReadFile(filepath.Join("..", "..", "p4", "softswitch", "testdata", "loops.json"))
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	var program struct {
		Headers []object `json:"headers"`
		Actions []object `json:"actions"`
	}
	var whole object
	if err := json.Unmarshal(b, &program); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &whole); err != nil {
		return nil, err
	}
	header := func(name string) object { return object{"type": "header", "value": name} }
	statement := func(op string, headers ...object) any { return object{"op": op, "parameters": headers} }
	whole["headers"] = append(program.Headers, object{"name": "copy", "id": 99, "header_type": "standard_metadata",
		"metadata": true})
	i := slices.IndexFunc(program.Actions, func(a object) bool {
		p, _ := a["primitives"].([]any)
		return len(p) == 1 && p[0].(object)["op"] == "mark_to_drop"
	})
	program.Actions[i]["primitives"] = []any{
		statement("assign_header", header("copy"), header("standard_metadata")),
		statement("mark_to_drop", header("copy")),
		statement("assign_header", header("standard_metadata"), header("copy")),
	}
	whole["actions"] = program.Actions
	return json.Marshal(whole)
}

// dropAll sends frames that the program drops, and as many that it forwards, through a switch
// process, and returns how many of each leave.
func (t *trial) dropAll(frames int) (dropped, forwarded int) {
	t.Helper()
	file := func(name string) string { return filepath.Join(t.dir, name) }
	program, err := droppingProgram()
	if err == nil {
		err = os.WriteFile(file("drop.json"), program, 0o600)
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	in, err := pcapfile.Create(file("in.pcap"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	const opDrop = 2
	for i := range 2 * frames {
		frame := make([]byte, 12)
		frame[0] = byte(i % 2 * opDrop)
		if err := in.Write(pcapfile.Packet{Date: time.Unix(1, 0), Frame: frame}); err != nil {
			t.Fatalf("%v", err)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatalf("%v", err)
	}
	p := t.start("dropping", t.bin.netsketch, "switch", "--listen", freeAddress(t), "--json", file("drop.json"),
		"--port", "0="+file("in.pcap"), "--port", "1=,"+file("out.pcap"), "--once")
	t.await("the frames have been played", func() bool { return !p.running() })
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("exit code %d: %s", code, p.text())
	}
	out, err := pcapfile.Open(file("out.pcap"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer out.Close()
	for {
		p, err := out.Next()
		switch {
		case errors.Is(err, io.EOF):
			return dropped, forwarded
		case err != nil:
			t.Fatalf("%v", err)
		case slices.Contains(p.Frame[:2], opDrop): // a header of one byte may be in front
			dropped++
		default:
			forwarded++
		}
	}
}

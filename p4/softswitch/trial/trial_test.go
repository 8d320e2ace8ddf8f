// SPDX-License-Identifier: Apache-2.0

package trial_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/softswitch/trial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The programs of this repository do what their P4Info says.
func TestCompiled(t *testing.T) {
	for _, name := range compiled.Names() {
		p, err := compiled.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := trial.Check(&p4rt.Program{Name: name, DeviceConfig: p.JSON, P4Info: p.P4Info}); err != nil {
			t.Error(err)
		}
	}
}

const example = "../../../examples/cocosketch/p4/cocosketch"

// changed returns the example's program with changes of its P4Info and of its device config, each
// of which must change something.
func changed(t *testing.T, info, config func(string) string) *p4rt.Program {
	t.Helper()
	p, err := p4rt.ReadProgram(example+".json", example+".p4info.txtpb")
	if err != nil {
		t.Fatal(err)
	}
	if info != nil {
		before := prototext.Format(p.P4Info)
		text := regexp.MustCompile(`: +`).ReplaceAllString(before, ": ") // Format varies the number of spaces
		after := info(text)
		proto.Reset(p.P4Info)
		if err := prototext.Unmarshal([]byte(after), p.P4Info); err != nil || after == text {
			t.Fatalf("the change of the P4Info changes nothing: %v", err)
		}
	}
	if config != nil {
		before := string(p.DeviceConfig)
		if p.DeviceConfig = []byte(config(before)); string(p.DeviceConfig) == before {
			t.Fatal("the change of the device config changes nothing")
		}
	}
	return p
}

// replace returns a change of the last of n places.
func replace(n int, old, with string) func(string) string {
	return func(s string) string {
		parts := strings.Split(s, old)
		if len(parts) < n+1 {
			return s
		}
		return strings.Join(parts[:n], old) + with + strings.Join(parts[n:], old)
	}
}

// Each contradiction between P4Info and the program is an error of Check that names it.
func TestContradictions(t *testing.T) {
	const (
		clear = `{ "op" : "register_write", "parameters" : [ { "type" : "register_array", "value" : "ingress.own.slots" }, ` +
			`{ "type" : "field", "value" : ["packet_out", "index"] }, { "type" : "hexstr", "value" : `
		twoBanks = `["packet_out", "bank"] }, "right" : { "type" : "hexstr", "value" : "0x02"`
		count    = `"value" : "ingress.own.counted" }, { "type" : "field", "value" : ["scalars", "tmp_38"] }`
	)
	both := func(changes ...func(string) string) func(string) string {
		return func(s string) string {
			for _, f := range changes {
				s = f(s)
			}
			return s
		}
	}
	for name, test := range map[string]struct {
		info, config func(string) string
		want         string
	}{
		"another object": {replace(1, "int64_value: 128", "int64_value: 129"), nil,
			"register ingress.own.slots: the program does not answer a read-out of object 129, bank 1, from cell 0"},
		"fewer cells are answered": {nil, replace(4, "0x00003000", "0x00002f00"),
			"does not answer a read-out of object 128, bank 1, from cell 12032"},
		"fewer banks are answered": {nil, replace(1, twoBanks, strings.Replace(twoBanks, "0x02", "0x01", 1)),
			"does not answer a read-out of object 128, bank 1, from cell 0"},
		"the read-out takes another size of a bank": {nil, replace(3, "0x00003000", "0x00001800"),
			"the read-out of object 128, bank 1, has 4294967295 for cell 0, which is 0"},
		"the read-out does not clear": {nil, replace(7, clear+`"0x00000000"`, clear+`"0x00000007"`),
			"its read-out (object 128) leaves 7 in cell 6 of bank 1"},
		"packets take another size of a bank": {nil, both(replace(2, "0x00003000", "0x00001000"),
			replace(1, "0x00003000", "0x00001000")), "packets that are counted in bank 1 change cell"},
		"the counter counts in another cell": {nil, replace(1, count,
			`"value" : "ingress.own.counted" }, { "type" : "hexstr", "value" : "0x00" }`),
			"packets change bank 1, and its counter ingress.own.counted does not count them"},
		"P4Info of another size": {replace(1, "size: 24576", "size: 49152"), nil,
			"its P4Info has 49152 cells of 32 bits, and its device config has 98304 bytes"},
		"P4Info of another width": {func(s string) string {
			return regexp.MustCompile(`(bitstring: \{\s+bit: \{\s+bitwidth: )32`).ReplaceAllString(s, "${1}16")
		}, nil, "its P4Info has 24576 cells of 16 bits, and its device config has 98304 bytes"},
	} {
		if err := trial.Check(changed(t, test.info, test.config)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// A program without the headers for packets is read by RegisterEntry, and the trial measures how
// long that takes.
func TestByRegister(t *testing.T) {
	p := changed(t, func(s string) string {
		return regexp.MustCompile(`(?s)controller_packet_metadata: \{.*?\n\}\n`).ReplaceAllString(s, "")
	}, nil)
	trialOf, err := trial.New(p)
	if err != nil {
		t.Fatal(err)
	}
	defer trialOf.Close()
	if err := trialOf.Check(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	empty, full, err := trialOf.ByRegister(ctx)
	if err != nil || empty <= 0 || full <= 0 { // which one takes longer depends on the machine's load
		t.Errorf("%v for an empty bank, %v for a full one, %v", empty, full, err)
	}
}

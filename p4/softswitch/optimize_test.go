// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/compile"
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// TestOptimizeChangesNothing runs every test program, those that parse stacks of headers, and those
// that copy what they do not emit, with and without the optimizer.
func TestOptimizeChangesNothing(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	compiled := []string{"univmon", "lightguardian", "sketchint-edge"}
	for _, name := range compiled {
		files = append(files, filepath.Join("..", "compiled", name+".json"))
	}
	programs := copying(t)
	for _, file := range files {
		if programs[trimJSON(file)], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	for name, js := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sw [2]*Switch
			var out [2][]byte
			for i, compile := range []func([]byte) (*Program, error){compile.Unoptimized, Compile} {
				p, err := compile(js)
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					p.Zero = []program.Span{{N: p.Fields}} // all that a packet before may have left
				}
				sw[i] = New(Config{Seed: 1, Clock: func() time.Duration { return 0 }})
				defer sw[i].Close()
				if err := sw[i].Load(p); err != nil {
					t.Fatal(err)
				}
				for id := range uint32(3) {
					if err := sw[i].AddPort(id, Port{Tx: func(pkt []byte, _ time.Duration) {
						out[i] = append(out[i],
							pkt...)
					}}); err != nil {
						t.Fatal(err)
					}
				}
				forwardAll(t, sw[i])
			}
			r := rand.New(rand.NewPCG(7, 7))
			base, _, _ := strings.Cut(name, " ")
			gen := goldenInputs[base]
			if slices.Contains(compiled, base) {
				gen = layered
			}
			for n := range 1500 {
				pkt := udp(r.Uint32N(50), r.Uint32N(50), uint16(r.Uint32N(9)), 80)
				if gen != nil {
					pkt = gen(r)
				} else if name == "services" {
					pkt = request{op: byte(n % 14), session: byte(r.IntN(9)), key: uint16(r.Uint32()), flow: r.Uint32(),
						v: r.Uint32()}.bytes()
				}
				for i := range sw {
					out[i] = out[i][:0]
					sw[i].Inject(0, pkt, time.Duration(n))
				}
				if !bytes.Equal(out[0], out[1]) {
					t.Fatalf("packet %x\n plain     %x\n optimized %x", pkt, out[0], out[1])
				}
			}
			for _, reg := range sw[0].Program().Info.Registers {
				a, err1 := sw[0].ReadRegisterBytes(reg.Name, 0, -1)
				b, err2 := sw[1].ReadRegisterBytes(reg.Name, 0, -1)
				if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
					t.Errorf("register %s differs: %v %v", reg.Name, err1, err2)
				}
			}
			if a, b := sw[0].Stats(), sw[1].Stats(); a != b {
				t.Errorf("plain %+v\noptimized %+v", a, b)
			}
		})
	}
}

func trimJSON(file string) string {
	name := filepath.Base(file)
	return name[:len(name)-len(".json")]
}

// copying returns test programs in which only a copy, or the field of a stack's last element, reads
// a header: the deparser does not emit it. Packets without that header follow those with it.
func copying(t *testing.T) map[string][]byte {
	t.Helper()
	value := func(kind string, v any) object { return object{"type": kind, "value": v} }
	field := func(path ...string) object { return value("field", path) }
	statement := func(op string, params ...object) object { return object{"op": op, "parameters": params} }
	silence := func(tree object, prefix string) {
		deparser := items(tree, "deparsers")[0].(object)
		deparser["order"] = slices.DeleteFunc(items(deparser, "order"), func(name any) bool {
			return strings.HasPrefix(name.(string), prefix)
		})
	}
	options := func(statements ...object) func(object) {
		return func(tree object) {
			silence(tree, "o")
			named(items(tree, "actions"), "constructs216")["primitives"] = statements
			header := named(items(tree, "header_types"), "options_t")
			fields := []any{[]any{"len", 8, false}}
			for i := range 17 { // the slots of the length and the data are cleared one without the other
				fields = append(fields, []any{fmt.Sprint("pad", i), 8, false})
			}
			header["fields"], header["max_length"] = append(fields, []any{"data", "*"}), 16+17
		}
	}
	return map[string][]byte{
		"constructs copying a header": edit(t, "constructs", options(
			statement("assign", field("o", "len"), field("x", "a")),
			statement("assign_header", value("header", "copy"), value("header", "o")))),
		"constructs copying a variable-length field": edit(t, "constructs", options(
			statement("add_header", value("header", "copy")),
			statement("assign_VL", field("copy", "data"), field("o", "data")))),
		"parsing reading the last label": edit(t, "parsing", func(tree object) {
			silence(tree, "labels")
			state := named(items(items(tree, "parsers")[0], "parse_states"), "labels")
			state["parser_ops"] = slices.Insert(items(state, "parser_ops"), 1,
				any(statement("set", field("labels[0]", "label"), field("kind", "value"))))
		}),
	}
}

// forwardAll makes a switch with one of the compiled programs forward what it can, and measure
// inner flows where it can choose.
func forwardAll(t *testing.T, s *Switch) {
	t.Helper()
	forward := &Action{Name: "ingress.forwarding.forward", Params: [][]byte{{1}, {2}, {3}}}
	for table, action := range map[string]*Action{
		"ingress.forwarding.ipv4_lpm": forward, "ingress.forwarding.ipv6_lpm": forward,
		"ingress.encapsulation.choice": {Name: "ingress.encapsulation.inner"},
	} {
		if _, ok := s.Program().Table(table); !ok {
			continue
		}
		if err := s.SetDefault(table, action); err != nil {
			t.Fatal(err)
		}
	}
}

// layered returns a frame with tags, labels and tunnels in any number. One in eight is cut off, and
// one in eight has a wrong byte.
func layered(r *rand.Rand) []byte {
	ip := func(protocol byte, payload []byte) []byte {
		b := udp(r.Uint32N(50), r.Uint32N(50), 0, 0)[14:34]
		b[9] = protocol
		b[10], b[11] = 0, 0
		sum := program.Algorithms["csum16"](b)
		b[10], b[11] = byte(sum>>8), byte(sum)
		return append(b, payload...)
	}
	frame := udp(r.Uint32N(50), r.Uint32N(50), uint16(r.Uint32N(9)), 80)
	for range r.IntN(4) {
		switch r.IntN(3) {
		case 0:
			frame = append(frame[:14:14], ip(4, frame[14:])...)
		case 1:
			frame = append(frame[:14:14], ip(47, append([]byte{0, 0, 8, 0}, frame[14:]...))...)
		case 2:
			vxlan := []byte{0, 9, 4789 >> 8, 4789 & 0xff, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0}
			frame = append(frame[:14:14], ip(17, append(vxlan, frame...))...)
		}
	}
	var link []byte
	for range r.IntN(5) {
		link = append(link, 0x81, 0, 0, 7)
	}
	if labels := r.IntN(8); labels > 0 && labels < 4 {
		link = append(link, 0x88, 0x47)
		for i := range labels {
			link = append(link, 0, 1, byte((i+1)/labels), 64)
		}
		frame = append(frame[:12:12], append(link, frame[14:]...)...)
	} else {
		frame = append(frame[:12:12], append(link, frame[12:]...)...)
	}
	switch at := r.IntN(len(frame)); r.IntN(8) {
	case 0:
		frame = frame[:at]
	case 1:
		frame[at] ^= byte(1 + r.IntN(255))
	}
	return frame
}

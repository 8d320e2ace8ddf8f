// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netsketch/netsketch/p4/bmv2"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// sizes are parameters of the compiler, without the prefix of their program.
type sizes map[string]int

// compile compiles a program with other sizes. It skips the test if p4c-bm2-ss is not on the PATH.
func compile(t *testing.T, program, prefix string, s sizes) (*compiled.Program, error) {
	t.Helper()
	p4c, err := exec.LookPath("p4c-bm2-ss")
	if err != nil {
		t.Skip("p4c-bm2-ss is not on the PATH")
	}
	dir := t.TempDir()
	out, info := filepath.Join(dir, "out.json"), filepath.Join(dir, "out.p4info.txtpb")
	args := []string{"--std", "p4-16", "--p4runtime-files", info, "-o", out}
	for name, n := range s {
		args = append(args, fmt.Sprintf("-D%s%s=%d", prefix, name, n))
	}
	cmd := exec.Command(p4c, append(args, program+".p4")...)
	cmd.Dir = filepath.Join("..", "..", "programs")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	p := &compiled.Program{Name: program, P4Info: &p4configv1.P4Info{}}
	if p.JSON, err = os.ReadFile(out); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(info)
	if err != nil {
		return nil, err
	}
	return p, prototext.Unmarshal(text, p.P4Info)
}

// TestOtherSizes: the sizes of ChameleMon's structures are parameters of the compiler. Needs
// p4c-bm2-ss on the PATH.
func TestOtherSizes(t *testing.T) {
	const prefix = "NS_CHAMELEMON_"
	p, err := compile(t, "chamelemon", prefix, sizes{"TOWER8": 4096, "TOWER16": 2048, "UPSTREAM": 768,
		"DOWNSTREAM": 512, "UPSTREAM_IPV6": 512, "DOWNSTREAM_IPV6": 256})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := softswitch.Compile(p.JSON); err != nil {
		t.Fatal(err)
	}
	cells := map[string]int32{}
	for _, r := range p.P4Info.GetRegisters() {
		cells[r.GetPreamble().GetName()] = r.GetSize()
	}
	for name, want := range map[string]int32{
		"ingress.chamelemon.tower8": 4096, "ingress.chamelemon.tower16": 2048,
		"ingress.chamelemon.upstream": 3 * 768 * 5, "chamelemon_downstream": 3 * 512 * 5,
		"ingress.chamelemon.upstream_ipv6": 3 * 512 * 11, "chamelemon_downstream_ipv6": 3 * 256 * 11,
	} {
		if cells[name] != 2*want {
			t.Errorf("%s has %d cells, expected two banks of %d", name, cells[name], want)
		}
	}
	for _, s := range []sizes{{"UPSTREAM": 1000}, {"DOWNSTREAM": 8192}} {
		if _, err := compile(t, "chamelemon", prefix, s); err == nil {
			t.Errorf("%v compiles", s)
		}
	}
}

// TestOmniMonSizes: every form of OmniMon's header and of its slot arrays conforms, on the soft
// switch and, if it is on the PATH, on BMv2. Needs p4c-bm2-ss on the PATH.
func TestOmniMonSizes(t *testing.T) {
	const prefix = "NS_OMNIMON_"
	for name, s := range map[string]sizes{
		"one-slot":        {"SLOTS_PER_FLOW": 1, "SLOTS": 256, "UNITS": 0, "QUEUE_UNITS": 0},
		"three-slots":     {"SLOTS_PER_FLOW": 3, "SLOTS": 512, "UNITS": 0},
		"four-slots":      {"SLOTS_PER_FLOW": 4, "SLOTS": 512, "UNITS": 0},
		"largest":         {"SLOTS_PER_FLOW": 4, "DIFFERENCES": 4, "SLOTS": 1024, "UNITS": 8, "QUEUE_UNITS": 4},
		"one-difference":  {"SLOTS_PER_FLOW": 3, "DIFFERENCES": 1, "SLOTS": 256, "UNITS": 0},
		"two-differences": {"DIFFERENCES": 2, "SLOTS": 2048, "UNITS": 1, "QUEUE_UNITS": 2},
		"most-of-one":     {"SLOTS_PER_FLOW": 1, "DIFFERENCES": 3, "SLOTS": 256, "UNITS": 0},
		"array-per-port":  {"ARRAYS": 16, "SLOTS": 256, "UNITS": 1},
		"most-slots":      {"SLOTS": 65536, "UNITS": 0, "ETHERTYPE": 0x88b6},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := compile(t, "omnimon", prefix, s)
			if err != nil {
				t.Fatal(err)
			}
			t.Run("SoftSwitch", func(t *testing.T) {
				b := conform(t, p, startSoft(t)).omnimon
				found := sizes{"SLOTS_PER_FLOW": b.layout.slots, "DIFFERENCES": b.layout.differences, "SLOTS": b.slots,
					"ARRAYS": b.arrays, "UNITS": len(b.units), "QUEUE_UNITS": len(b.queueUnits),
					"ETHERTYPE": int(b.layout.etherType)}
				for key, want := range s {
					if found[key] != want {
						t.Errorf("P4Info has %s = %d, compiled with %d", key, found[key], want)
					}
				}
			})
			if _, err := exec.LookPath(bmv2.Program); err == nil {
				t.Run("BMv2", func(t *testing.T) { conform(t, p, startBMv2(t)) })
			}
		})
	}
	for _, s := range []sizes{{"SLOTS_PER_FLOW": 5}, {"DIFFERENCES": 5}, {"SLOTS": 1000}, {"SLOTS": 131072}, {"ARRAYS": 3},
		{"UNITS": 9}, {"QUEUE_UNITS": 5}} {
		if _, err := compile(t, "omnimon", prefix, s); err == nil {
			t.Errorf("%v compiles", s)
		}
	}
}

// TestCarrierSizes: programs other than omnimon, compiled for another form of OmniMon's header,
// find the packet behind every carrier of that form, on the soft switch and, if it is on the PATH,
// on BMv2. Needs p4c-bm2-ss on the PATH.
func TestCarrierSizes(t *testing.T) {
	defer func(was layout) { ofHosts = was }(ofHosts)
	for _, ofHosts = range []layout{{0x88b6, 3, 1}, {0x88b5, 1, 0}, {0x88b5, 4, 4}} {
		for _, program := range []string{"forwarding", "univmon-300k"} {
			t.Run(fmt.Sprintf("%s/%d-%d", program, ofHosts.slots, ofHosts.differences), func(t *testing.T) {
				p, err := compile(t, program, "NS_OMNIMON_", sizes{"ETHERTYPE": int(ofHosts.etherType),
					"SLOTS_PER_FLOW": ofHosts.slots, "DIFFERENCES": ofHosts.differences})
				if err != nil {
					t.Fatal(err)
				}
				t.Run("SoftSwitch", func(t *testing.T) { conform(t, p, startSoft(t)) })
				if _, err := exec.LookPath(bmv2.Program); err == nil {
					t.Run("BMv2", func(t *testing.T) { conform(t, p, startBMv2(t)) })
				}
			})
		}
	}
}

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

	"github.com/netsketch/netsketch/p4/softswitch"
)

// TestOtherSizes: the sizes of ChameleMon's structures are parameters of the compiler. Needs
// p4c-bm2-ss on the PATH.
func TestOtherSizes(t *testing.T) {
	p4c, err := exec.LookPath("p4c-bm2-ss")
	if err != nil {
		t.Skip("p4c-bm2-ss is not on the PATH")
	}
	compile := func(sizes map[string]int) ([]byte, *p4configv1.P4Info, error) {
		dir := t.TempDir()
		out, info := filepath.Join(dir, "out.json"), filepath.Join(dir, "out.p4info.txtpb")
		args := []string{"--std", "p4-16", "--p4runtime-files", info, "-o", out}
		for name, n := range sizes {
			args = append(args, fmt.Sprintf("-DNS_CHAMELEMON_%s=%d", name, n))
		}
		cmd := exec.Command(p4c, append(args, "chamelemon.p4")...)
		cmd.Dir = filepath.Join("..", "..", "programs")
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("%w: %s", err, text)
		}
		json, err := os.ReadFile(out)
		if err != nil {
			return nil, nil, err
		}
		text, err := os.ReadFile(info)
		if err != nil {
			return nil, nil, err
		}
		p := &p4configv1.P4Info{}
		return json, p, prototext.Unmarshal(text, p)
	}
	json, info, err := compile(map[string]int{"TOWER8": 4096, "TOWER16": 2048, "UPSTREAM": 768, "DOWNSTREAM": 512,
		"UPSTREAM_IPV6": 512, "DOWNSTREAM_IPV6": 256})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := softswitch.Compile(json); err != nil {
		t.Fatal(err)
	}
	cells := map[string]int32{}
	for _, r := range info.GetRegisters() {
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
	for _, sizes := range []map[string]int{{"UPSTREAM": 1000}, {"DOWNSTREAM": 8192}} {
		if _, _, err := compile(sizes); err == nil {
			t.Errorf("%v compiles", sizes)
		}
	}
}

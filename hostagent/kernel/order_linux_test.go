// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
)

// TestOrder: whichever role comes first, INT and sketchlets of switches are removed before OmniMon
// counts the bytes of a packet, and UnivMon sees packets as they are on the wire.
func TestOrder(t *testing.T) {
	if !kerneltest.Isolated(t) {
		return
	}
	roles := []string{"univmon", "sketchint", "lightguardian", "omnimon", "another"}
	for _, clsact := range []bool{false, true} {
		for range 10 {
			var attachments []*kernel.Attachment
			for _, i := range rand.Perm(len(roles)) {
				cfg := kernel.Config{Role: roles[i], Interface: "host", Clsact: clsact}
				spec := &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{"receive": {Type: ebpf.SchedCLS,
					License: "Apache-2.0", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}}}}
				kernel.Name(spec, roles[i])
				program, err := ebpf.NewProgram(spec.Programs["receive"])
				if err != nil {
					t.Fatal(err)
				}
				a := kernel.NewAttachment(cfg, nil)
				attachments = append(attachments, a)
				err = a.Set(nil, kernel.Hook{Name: "receive", Program: program, At: ebpf.AttachTCXIngress,
					First: roles[i] != "another"})
				if err != nil {
					t.Fatal(err)
				}
				_ = program.Close()
			}
			host, err := net.InterfaceByName("host")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range kernel.Programs([]net.Interface{*host}) {
				got = append(got, fmt.Sprint(p))
			}
			for i, role := range roles { // nsketch_univmo at TCX, netsketch-univmon-receive at clsact
				if len(got) <= i || !strings.Contains(strings.ReplaceAll(got[i], "-", "_"), "_"+role[:6]) {
					t.Fatalf("clsact %v: the interface runs %q, want the order of %q", clsact, got, roles)
				}
			}
			for _, a := range attachments {
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

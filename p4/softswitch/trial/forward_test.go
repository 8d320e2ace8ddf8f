// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"testing"

	"github.com/netsketch/netsketch/p4/p4rt"
)

// Packets of the trial leave the switch, so that a register and a counter of egress are compared.
func TestForward(t *testing.T) {
	const example = "../../../examples/cocosketch/p4/cocosketch"
	p, err := p4rt.ReadProgram(example+".json", example+".p4info.txtpb")
	if err != nil {
		t.Fatal(err)
	}
	trial, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	defer trial.Close()
	if err := trial.Check(); err != nil {
		t.Fatal(err)
	}
	out, err := trial.sw.PortStatus(2)
	if err != nil || out.Counters.OutPackets != 2*trafficPackets { // with each of two banks
		t.Errorf("%+v, %v", out, err)
	}
}

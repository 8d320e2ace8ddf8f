// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// TestRole: the role in a data path, as the agent drives it.
func TestRole(t *testing.T) {
	p := agent.NewRolePath(newCounter)
	p.Advance(7)
	if err := p.Apply([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	p.Out([]*packet.Frame{packet.NewFrame(make([]byte, 60)), packet.NewFrame(make([]byte, 40))})
	p.In([]*packet.Frame{packet.NewFrame(make([]byte, 100))})
	if r, _ := p.Seal(7); r != nil {
		t.Error("a report of the current epoch")
	}
	p.Advance(8)
	r, err := p.Seal(7)
	if err != nil || r == nil {
		t.Fatal(r, err)
	}
	const want = `{"packetsOut":2,"bytesOut":100,"packetsIn":1,"bytesIn":100}`
	if got := string(r.Append(nil)); got != want {
		t.Errorf("report %s, want %s", got, want)
	}
}

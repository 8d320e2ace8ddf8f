// SPDX-License-Identifier: Apache-2.0

package program

import "testing"

func TestName(t *testing.T) {
	for called, want := range map[string]string{"netsketch": "netsketch", "bin/netsketch": "bin/netsketch",
		"/usr/bin/netsketch": "/usr/bin/netsketch", "/tmp/x/scenario.test": "netsketch"} {
		if got := nameOf(called); got != want {
			t.Errorf("%s: %s, want %s", called, got, want)
		}
	}
}

func TestAgent(t *testing.T) {
	for called, want := range map[string]string{"netsketch-agent": "netsketch-agent",
		"./hostagent-bursts": "hostagent-bursts", "/tmp/x/command.test": "netsketch-agent"} {
		if got := agentOf(called); got != want {
			t.Errorf("%s: %s, want %s", called, got, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package natsserver

import (
	"strings"
	"testing"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// A server without TLS that others may reach is named in the log.
func TestWarnsOfClearText(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:4222": false, "[::1]:4222": false, "localhost:4222": false, "": false,
		":4222": true, "0.0.0.0:4222": true, "192.0.2.1:4222": true, "nats.example.net:4222": true,
	} {
		for _, e := range []bus.Embedded{{Listen: address}, {Listen: "127.0.0.1:1", RouteListen: address}} {
			log := &testkit.Log{}
			warn(bus.Config{Logger: log.Logger(), Embedded: &e})
			if warned := strings.Contains(log.String(), "address="+address); warned != want || !want && log.String() != "" {
				t.Errorf("%+v: warned %v, want %v:\n%s", e, warned, want, log)
			}
		}
	}
}

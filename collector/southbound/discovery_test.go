// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"testing"

	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// Configured links are reported even if no switch has a gNMI session, and again after the
// configuration changed.
func TestConfiguredLinksWithoutSessions(t *testing.T) {
	const switches = "devices:\n" +
		"  - {name: leaf1, address: \"127.0.0.1:1\", device-id: 1, pipeline: univmon, tls: {plaintext: true}}\n" +
		"  - {name: spine1, address: \"127.0.0.1:2\", device-id: 2, pipeline: univmon, tls: {plaintext: true}}\n" +
		"outputs:\n  - {type: gnmi, address: \"127.0.0.1:0\", tls: {plaintext: true}}\n"
	load := func(links string) *config.Config {
		cfg, err := config.Parse("test.yaml", []byte(switches+links))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	d, err := New(load("links:\n  - {from: leaf1/1, to: spine1/1}\n"), Dependencies{
		Exclusive: func(f func()) bool { f(); return true }})
	if err != nil {
		t.Fatal(err)
	}
	d.Start()
	defer d.Stop()
	testkit.Until(t, "both ends are reported", func() bool {
		links := d.Links()
		return len(links) == 2 && links[0].Status == Configured && links[0].Configured == links[1].Port
	})
	if err := d.Reload(load(""), config.Changes{}); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "no link is left", func() bool { return len(d.Links()) == 0 })
}

// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"fmt"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// Without NATS, each collector measures the devices that it owns, its plugins analyze them, and the
// epochs are partial.
func TestCollectorsWithoutNATS(t *testing.T) {
	proxy, cut := bustest.Proxy(t, bustest.Server(t))
	names := []string{"s1", "s2", "s3"}
	rigs := startAll(t, func(name string) string {
		return devicesYAML(len(names)) + pluginsYAML(t, "fake") + fmt.Sprintf(
			"cluster: {name: fabric, member: %s, nats: {addresses: [%q], tls: {plaintext: true}}}\n", name, proxy)
	}, "c1", "c2")
	shared := func() bool { // each device has one owner, and each collector owns a device
		owned := map[bool]int{}
		for _, d := range names {
			if rigs["c1"].c.network.Foreign(d) == rigs["c2"].c.network.Foreign(d) {
				return false
			}
			owned[rigs["c1"].c.network.Foreign(d)]++
		}
		return len(owned) == 2
	}
	stepUntil(t, "each collector has devices", rigs, shared)
	measured := func() bool { // all devices have joined
		for name, rep := range stepAll(rigs) {
			for _, d := range rep.Devices {
				if d.Err != nil && !rigs[name].c.network.Foreign(d.Name) {
					return false
				}
			}
		}
		return true
	}
	testkit.Until(t, "all devices are measured", measured)
	cut()
	for name, r := range rigs {
		testkit.Until(t, name+" has no lease", func() bool {
			v := r.c.view()
			return !v.Leased && len(v.Members) == 2
		})
	}
	for name, rep := range stepAll(rigs) {
		r := rigs[name]
		if rep.Status != epoch.Partial || len(rep.Devices) != len(names) {
			t.Errorf("%s: an epoch is %v with the devices %+v", name, rep.Status, rep.Devices)
		}
		var own, analyzed []string
		for _, d := range rep.Devices {
			if foreign := r.c.network.Foreign(d.Name); foreign != (d.Err != nil) {
				t.Errorf("%s: device %s of another collector: %v, error %v", name, d.Name, foreign, d.Err)
			} else if !foreign {
				own = append(own, d.Name)
			}
		}
		r.plugins["fake"].do(func(p *fakePlugin) {
			for _, d := range p.epochs[len(p.epochs)-1].Devices {
				analyzed = append(analyzed, d.Name)
			}
		})
		slices.Sort(own)
		slices.Sort(analyzed)
		if len(own) == 0 || !slices.Equal(own, analyzed) {
			t.Errorf("%s owns %q, and its plugin analyzed %q", name, own, analyzed)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// startAll starts rigs at the same time, by the names of their members.
func startAll(t *testing.T, yaml func(name string) string, names ...string) map[string]*rig {
	t.Helper()
	var mu sync.Mutex
	var starts sync.WaitGroup
	rigs := map[string]*rig{}
	for _, name := range names {
		starts.Go(func() {
			r := newRig(t, yaml(name), nil)
			mu.Lock()
			defer mu.Unlock()
			rigs[name] = r
		})
	}
	starts.Wait()
	if len(rigs) < len(names) {
		t.FailNow()
	}
	return rigs
}

// stepAll closes the open epochs of all members at the same time, because a member waits in real
// time for the data of the others.
func stepAll(rigs map[string]*rig) map[string]Report {
	var mu sync.Mutex
	var steps sync.WaitGroup
	reports := map[string]Report{}
	for name, r := range rigs {
		steps.Go(func() {
			rep := r.step()
			mu.Lock()
			defer mu.Unlock()
			reports[name] = rep
		})
	}
	steps.Wait()
	return reports
}

// checksPerEpoch is how often stepUntil checks before it closes an epoch. The checks leave time for
// the messages with which devices, hosts and plugins move.
const checksPerEpoch = 10

// stepUntil closes epochs at all members until ok returns true. Epochs must end, because members
// take devices, hosts and plugins over only between epochs.
func stepUntil(t *testing.T, what string, rigs map[string]*rig, ok func() bool) {
	t.Helper()
	checks := 0
	testkit.Until(t, what, func() bool {
		if checks++; checks%checksPerEpoch == 0 {
			stepAll(rigs)
		}
		return ok()
	})
}

// A plan of a plugin is written to the devices of all collectors, with the same outcomes as in one
// collector. The plan waits for a device that is away.
func TestPlansOfACluster(t *testing.T) {
	server := bustest.Server(t)
	rigs := map[string]*rig{}
	for _, name := range []string{"c1", "c2"} { // with fakes, no session decides who shares entries
		rigs[name] = newRig(t, devicesYAML(3)+pluginsYAML(t, "fake")+fmt.Sprintf(
			"cluster: {name: fabric, member: %s, nats: {addresses: [%q], tls: {plaintext: true}}}\n", name, server), nil)
	}
	names := []string{"s1", "s2", "s3"}
	owner := func(device string) *rig { return rigs[rigs["c1"].c.view().Device(device)] }
	oneOwner := func(d string) bool {
		o := owner(d)
		return o != nil && len(o.c.view().Members) == 2 && !o.c.network.Foreign(d) &&
			(rigs["c1"].c.network.Foreign(d) || rigs["c2"].c.network.Foreign(d))
	}
	for _, d := range names {
		stepUntil(t, d+" has one owner", rigs, func() bool { return oneOwner(d) })
	}
	stepUntil(t, "the plugin has moved", rigs, func() bool {
		open, _ := rigs["c1"].c.Epoch()
		v := rigs["c1"].c.view()
		return v.In(open).Plugin("fake") == v.Plugin("fake")
	})
	home := rigs[rigs["c1"].c.view().Plugin("fake")]
	remote := ""
	for _, d := range names {
		if home.c.network.Foreign(d) {
			remote = d
		}
	}
	if remote == "" {
		t.Fatal("the plugin's home owns all devices")
	}
	plan := func(id uint64, table string, preEpoch bool) {
		open, _ := home.c.Epoch()
		p := sdk.Plan{ID: id, FromEpoch: open, PreEpoch: preEpoch}
		if preEpoch {
			p.FromEpoch++
		}
		for _, d := range names {
			p.Writes = append(p.Writes, sdk.DeviceWrite{Device: d, Op: sdk.Insert, Entry: sdk.TableEntry{Table: table}})
		}
		home.c.Plan(t.Context(), "fake", p)
	}
	written := func(device, table string) (n int) {
		owner(device).devices[device].do(func(d *fakeDevice) {
			for _, entry := range d.applied {
				if entry == table {
					n++
				}
			}
		})
		return n
	}
	open, _ := home.c.Epoch()
	for _, r := range rigs {
		r.c.intent.Collected(t.Context(), open-1)() // the bank of the next epoch is free
	}
	plan(7, "first", true)
	for _, d := range names {
		if n := written(d, "first"); n != 1 {
			t.Errorf("%s has the first plan %d times", d, n)
		}
	}
	if got := home.c.intent.Counts("fake"); got.Applied != 3 || got.Failed+got.Late != 0 {
		t.Errorf("outcomes of the first plan: %+v", got)
	}
	away := errors.New("no carrier")
	owner(remote).devices[remote].do(func(d *fakeDevice) { d.down = away })
	plan(8, "second", false)
	stepAll(rigs)
	if n := written(remote, "second"); n != 0 {
		t.Errorf("%s is away and has the second plan", remote)
	}
	owner(remote).devices[remote].do(func(d *fakeDevice) { d.down = nil })
	stepUntil(t, remote+" is back and has the second plan", rigs, func() bool {
		return written(remote, "second") > 0 && home.c.intent.Counts("fake").Applied == 6
	})
	stepAll(rigs)
	if n := written(remote, "second"); n != 1 {
		t.Errorf("%s has the second plan %d times", remote, n)
	}
	if got := home.c.intent.Counts("fake"); got.Failed != 0 || got.Applied != 6 {
		t.Errorf("outcomes of both plans: %+v", got)
	}
}

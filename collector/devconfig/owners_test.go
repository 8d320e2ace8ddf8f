// SPDX-License-Identifier: Apache-2.0

package devconfig

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// members returns two collectors of a cluster, c1 with the device and c2 without.
func members(t *testing.T, mode config.Configure, device *fake) (c1, c2 *rig) {
	c1, c2 = newRig(t, device, mode), newRig(t, device, mode)
	c1.records = &shared{}
	c2.records, c2.owner = c1.records, "c1"
	return c1, c2
}

// handOver makes c2 the owner.
func handOver(c1, c2 *rig) {
	c1.own("c2")
	c2.own("")
}

// A later owner restores values that an earlier owner wrote: on command, and when a key is removed
// from the file. It does not touch values that somebody else has changed.
func TestNextOwnerRestores(t *testing.T) {
	for _, name := range []string{"revert", "remove keys"} {
		t.Run(name, func(t *testing.T) {
			c1, c2 := members(t, config.ConfigureEnforce, newFake(t))
			c2.cfg.DeviceConfiguration.Interval = 10 * time.Millisecond
			c1.start()
			c2.start()
			c1.until(Clean)
			c1.device.put(eth4+"description", "somebody else's")
			if name == "revert" {
				handOver(c1, c2)
				c2.until(Clean) // the second owner sets the description again
				if restored, err := c2.Revert(t.Context(), "leaf1"); err != nil || !restored {
					t.Fatal(restored, err)
				}
				c2.expect(oldConfig())
				return
			}
			next := *c2.cfg
			next.Devices = slices.Clone(next.Devices)
			next.Devices[0].DeviceID, next.Devices[0].GNMI.Ports = 0, nil
			next.Links = nil
			c2.Reload(&next)
			handOver(c1, c2)
			testkit.Until(t, "the removed keys are restored", func() bool {
				s, _ := c2.Status("leaf1")
				return s.State == Clean && c2.device.get(node) == ""
			})
			want := oldConfig()
			want[eth4+"description"] = "somebody else's"
			c2.expect(want)
		})
	}
}

// A collector that joins a cluster brings its own records into the cluster.
func TestJoinsCluster(t *testing.T) {
	alone := newRig(t, newFake(t), config.ConfigureApply).start()
	if err := alone.apply(); err != nil {
		t.Fatal(err)
	}
	alone.Stop()
	c1 := newRig(t, alone.device, config.ConfigureApply)
	c1.records = &shared{}
	copyDir(t, alone.dir, c1.dir)
	c1.start()
	if restored, err := c1.Revert(t.Context(), "leaf1"); err != nil || !restored {
		t.Errorf("restored %v, error %v", restored, err)
	}
	c1.expect(oldConfig())
	if _, err := os.Stat(records(c1.dir).path("leaf1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file beside the cluster's record: %v", err)
	}
}

// If the cluster loses the record of a device, the owner saves it again.
func TestLostRecords(t *testing.T) {
	r := newRig(t, newFake(t), config.ConfigureApply)
	keep := &shared{}
	r.records = keep
	r.start()
	if err := r.apply(); err != nil {
		t.Fatal(err)
	}
	keep.mu.Lock()
	keep.data, keep.revision = nil, 0
	keep.mu.Unlock()
	if restored, err := r.Revert(t.Context(), "leaf1"); err != nil || !restored {
		t.Errorf("restored %v, error %v", restored, err)
	}
	r.expect(oldConfig())
}

// A device gets another owner between any two steps of a change. The next owner confirms a change
// that was proved, and undoes any other. The former owner changes nothing more, even if it does not
// know that it has lost the device.
func TestOwnerChangesBetweenSteps(t *testing.T) {
	for _, state := range []State{Setting, ReadingBack, AwaitingState, Connecting, Confirming, Undoing} {
		for mode, commits := range modes {
			for _, knows := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %s, the owner before knows it: %v", state, mode, knows), func(t *testing.T) {
					c1, c2 := members(t, config.ConfigureApply, newFake(t))
					c1.device.commits = commits
					if state == Undoing {
						c1.sessions.refuse = errors.New("refused")
					}
					sets := 0
					c1.onChange = when(c1, state, func() {
						if c2.own(""); knows {
							c1.own("c2")
						}
						c2.undone()
						sets = len(c1.device.setsNow())
					})
					c1.start()
					c2.start()
					if err := c1.apply(); err == nil {
						t.Error("the first owner has kept the change")
					}
					if n := len(c1.device.setsNow()); n != sets {
						t.Errorf("the first owner has sent %d Sets after the second one has ended the change", n-sets)
					}
					want := oldConfig()
					if state == Confirming {
						want = settled()
					}
					c1.expect(want)
					if c1.device.commit != "" {
						t.Error("a commit is pending")
					}
					c1.own("c2")
					if restored, err := c2.Revert(t.Context(), "leaf1"); err != nil || restored != (state == Confirming) {
						t.Errorf("revert at the second owner: restored %v, error %v", restored, err)
					}
					c1.expect(oldConfig())
				})
			}
		}
	}
}

// Saving the record fails at any moment of a change, with the record written or not. In no case is
// the change left half done.
func TestRecordCannotBeKept(t *testing.T) {
	for n := 1; n <= 6; n++ {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("record %d, written: %v", n, lost), func(t *testing.T) {
				r := newRig(t, newFake(t), config.ConfigureApply)
				full := errors.New("no space left")
				keep := &shared{fault: func(i int) (bool, error) {
					if i == n || i == n+1 && n > 1 { // the next record is the one of the undo
						return lost, full
					}
					return false, nil
				}}
				r.records = keep
				r.cfg.DeviceConfiguration.Interval = 20 * time.Millisecond
				r.start()
				if err := r.apply(); !errors.Is(err, full) {
					t.Fatalf("error %v", err)
				}
				testkit.Until(t, "the change is over", func() bool {
					r.pass(time.Minute)
					r.Wake("leaf1")
					s, _ := r.Status("leaf1")
					return r.record().Pending == nil && !s.State.transaction()
				})
				want := oldConfig()
				if rec := r.record(); len(rec.Written) > 0 {
					want = settled()
				}
				r.expect(want)
				if err := r.apply(); err != nil && len(r.record().Written) == 0 {
					t.Errorf("the next change: %v", err)
				}
				r.expect(settled())
			})
		}
	}
}

// If a device carries out a Set long after the Set was sent, the collector restores the earlier
// values.
func TestLateSet(t *testing.T) {
	for name, answer := range map[string]error{"after OK": nil, "without an answer": errHang} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newFake(t), config.ConfigureApply)
			r.cfg.Devices[0].Timeout = 300 * time.Millisecond
			r.device.fault = func(n int) (float64, error) {
				if n == 1 {
					return 0, answer
				}
				return 1, nil
			}
			r.start()
			if err := r.apply(); err == nil {
				t.Fatal("the change is made")
			}
			r.device.mu.Lock()
			r.device.config = settled()
			r.device.mu.Unlock()
			r.undone()
			r.expect(oldConfig())
		})
	}
}

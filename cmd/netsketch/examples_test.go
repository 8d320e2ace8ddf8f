// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"testing"

	"github.com/netsketch/netsketch/internal/config"
)

// The configuration files of examples that need root to run are valid.
func TestFilesOfExamples(t *testing.T) {
	const examples = "../../examples/"
	for _, e := range []struct {
		dir, script           string
		devices, links, hosts int
	}{
		{"bmv2", "network.sh", 3, 2, 2},
		{"lightguardian/netns", "netns.sh", 2, 1, 2},
		{"omnimon/netns", "netns.sh", 1, 0, 2},
		{"sketchint/netns", "netns.sh", 2, 1, 2},
	} {
		t.Run(e.dir, func(t *testing.T) {
			c, err := config.Load(examples + e.dir + "/collector.yaml")
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Devices) != e.devices || len(c.Links) != e.links || len(c.Hosts) != e.hosts {
				t.Errorf("%d devices, %d links, %d hosts", len(c.Devices), len(c.Links), len(c.Hosts))
			}
			bash, err := exec.LookPath("bash")
			if err != nil {
				t.Skipf("bash is not on the PATH: the syntax of %s is not checked; CI has bash", e.script)
			}
			if out, err := exec.Command(bash, "-n", examples+e.dir+"/"+e.script).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", e.script, err, out)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package netns_test

import (
	"os/exec"
	"testing"

	"github.com/netsketch/netsketch/collector/config"
)

// The files of the example are valid.
func TestFiles(t *testing.T) {
	c, err := config.Load("collector.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Devices) != 2 || len(c.Hosts) != 2 {
		t.Errorf("%d devices, %d hosts", len(c.Devices), len(c.Hosts))
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not on the PATH: the syntax of netns.sh is not checked; CI has bash")
	}
	if out, err := exec.Command(bash, "-n", "netns.sh").CombinedOutput(); err != nil {
		t.Errorf("netns.sh: %v\n%s", err, out)
	}
}

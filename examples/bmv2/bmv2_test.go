// SPDX-License-Identifier: Apache-2.0

package bmv2_test

import (
	"os/exec"
	"testing"

	"github.com/netsketch/netsketch/collector/config"
)

// The files of the example are valid. Starting it needs root; the README describes it.
func TestFiles(t *testing.T) {
	c, err := config.Load("collector.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Devices) != 3 || len(c.Links) != 2 || len(c.Hosts) != 2 {
		t.Errorf("%d devices, %d links, %d hosts", len(c.Devices), len(c.Links), len(c.Hosts))
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not on the PATH")
	}
	if out, err := exec.Command(bash, "-n", "network.sh").CombinedOutput(); err != nil {
		t.Errorf("network.sh: %v\n%s", err, out)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// runMain makes the test's program behave as netsketch-agent.
const runMain = "NETSKETCH_TEST_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestImports: the agent is a small program, and has nothing of the collector, switches or the lab
// but what reads its file and answers queries of its host.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skipf("go list: %v", err)
	}
	const project = "github.com/netsketch/netsketch/"
	allowed := []string{"cmd/netsketch-agent", "hostagent/", "internal/", "settings", "sketch", "yang",
		"collector/topology", "outputs/gnmi/server", "hostagent/omnimon/query"}
	// These dependencies are large: parsers of all protocols, a NATS server.
	forbidden := []string{"gopacket/", "nats-io/"}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		for _, f := range forbidden {
			if strings.Contains(name, f) {
				t.Errorf("the agent imports %s", name)
			}
		}
		own, ok := strings.CutPrefix(name, project)
		if !ok {
			continue
		}
		found := false
		for _, a := range allowed {
			found = found || own == a || strings.HasPrefix(own, strings.TrimSuffix(a, "/")+"/")
		}
		if !found {
			t.Errorf("the agent imports %s", own)
		}
	}
}

// TestSize: the agent that make has built is small. It grows by megabytes when it calls goyang, or
// a template: these look up methods by name, so that the linker keeps all exported ones. With
// -ldflags=-dumpdep, go build prints what is linked and why; look for ReflectMethod.
func TestSize(t *testing.T) {
	const most = 17_500_000
	bin := os.Getenv("NETSKETCH_BIN")
	if bin == "" || runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the bound is for the program that make builds on linux/amd64")
	}
	info, err := os.Stat(filepath.Join(bin, "netsketch-agent"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > most {
		t.Errorf("netsketch-agent has %d bytes, at most %d are expected", info.Size(), most)
	}
}

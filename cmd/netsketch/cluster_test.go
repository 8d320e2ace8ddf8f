// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

func TestCluster(t *testing.T) {
	server := bustest.Server(t)
	file := filepath.Join(t.TempDir(), "netsketch.yaml")
	text := fmt.Sprintf(`cluster: {name: fabric, member: c1, nats: {addresses: [%q], tls: {plaintext: true}}}
devices: [{name: s1, address: "127.0.0.1:1", device-id: 1}]
`, server)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := command(t, "", "cluster", "status", "--config", file); err == nil ||
		!strings.Contains(err.Error(), "cluster fabric has no members") {
		t.Errorf("without members: %v", err)
	}
	var holds atomic.Pointer[cluster.Holdings]
	holds.Store(&cluster.Holdings{Devices: []string{"s1", "s2"}, Plugins: []string{"univmon"}})
	c := cluster.New(cluster.Config{Member: "c1", Weight: 1, Version: "7"}, cluster.Dependencies{
		Bus: bustest.Connect(t, "fabric", "c1", server), OnView: func() {},
		Holds: func() cluster.Holdings { return *holds.Load() },
		Counts: func() cluster.Counts {
			return cluster.Counts{HandedOver: 3, Forced: 1, EpochsSent: 40, EntriesFailed: 2}
		}})
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	c.WaitView(t.Context())
	out, err := command(t, "", "cluster", "status", "--config", file)
	if err != nil || !strings.Contains(out, "c1      active  7") || !strings.Contains(out, "s1") {
		t.Errorf("status %q, %v", out, err)
	}
	if want := "c1      3            1       40           0         0        2\n"; !strings.Contains(out, want) {
		t.Errorf("status %q, want %q", out, want)
	}
	out, err = command(t, "", "cluster", "status", "--config", file, "--json")
	var got struct {
		Name    string
		Members []struct {
			Name, Version string
			Devices       []string
			Counts        map[string]int
		}
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &got)
	}
	if err != nil || got.Name != "fabric" || len(got.Members) != 1 || got.Members[0].Version != "7" ||
		!slices.Equal(got.Members[0].Devices, []string{"s1"}) || len(got.Members[0].Counts) != 6 ||
		got.Members[0].Counts["devices-handed-over"] != 3 || got.Members[0].Counts["host-epochs-sent"] != 40 {
		t.Errorf("status %q as %+v, error %v", out, got, err)
	}
	if _, err := command(t, "", "cluster", "drain", "c2", "--config", file); err == nil ||
		!strings.Contains(err.Error(), "no member c2 that answers") {
		t.Errorf("drain of a member that is not there: %v", err)
	}
	const owned = "devices s1,s2; plugins univmon"
	out, err = command(t, "", "cluster", "drain", "c1", "--config", file, "--wait", "--timeout", "1ms")
	if !strings.HasPrefix(out, "c1 owns "+owned+"\n") || err == nil ||
		!strings.Contains(err.Error(), "c1 still owns "+owned+";") {
		t.Errorf("drain of a member that does not hand over: %q, %v", out, err)
	}
	holds.Store(&cluster.Holdings{})
	out, err = command(t, "", "cluster", "drain", "c1", "--config", file, "--wait")
	if out != "c1 owns nothing\n" || err != nil {
		t.Errorf("drain of a member that has handed over: %q, %v", out, err)
	}
	testkit.Until(t, "c1 drains and owns nothing", func() bool {
		out, err := command(t, "", "cluster", "status", "--config", file)
		return err == nil && strings.Contains(out, "draining") && strings.Contains(out, "no member owns s1")
	})
	c.Measured(true)
	testkit.Until(t, "c1 is drained", func() bool {
		out, err := command(t, "", "cluster", "status", "--config", file)
		return err == nil && strings.Contains(out, "c1      drained")
	})
}

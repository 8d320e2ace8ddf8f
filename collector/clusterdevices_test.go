// SPDX-License-Identifier: Apache-2.0

package collector_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/collector/devconfig"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/storetest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/switchgnmi"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

// startUnconfigured starts a switch without a device id and without port numbers, and returns the
// address of its P4Runtime and gNMI server.
func startUnconfigured(t *testing.T) string {
	t.Helper()
	sw := softswitch.New(softswitch.Config{})
	for port := uint32(1); port <= 2; port++ {
		err := sw.AddPort(port, softswitch.Port{Name: fmt.Sprint("p", port), Tx: func([]byte, time.Duration) {}})
		if err != nil {
			t.Fatal(err)
		}
	}
	p4rt := p4rtserver.New(sw, p4rtserver.Options{NoDeviceID: true, Compile: compiler.Compile})
	gnmi, err := switchgnmi.New(sw, switchgnmi.Options{Name: "s", Unconfigured: true, SetDeviceID: p4rt.SetDeviceID})
	if err != nil {
		t.Fatal(err)
	}
	rpc := grpc.NewServer(p4rtserver.ServerOptions()...)
	p4rt.Register(rpc)
	gnmi.Register(rpc)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(lis) }()
	t.Cleanup(func() {
		rpc.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := gnmi.Close(context.Background()); err != nil {
			t.Error(err)
		}
		p4rt.Close()
		sw.Close()
	})
	return lis.Addr().String()
}

// Of two collectors, only the owner of a switch configures it. A command to the other one says who
// has the switch. When the owner ends, the other one restores what the owner had set.
func TestOnlyTheOwnerConfigures(t *testing.T) {
	server := bustest.Server(t)
	switches := []string{startUnconfigured(t), startUnconfigured(t), startUnconfigured(t)}
	members, stops, dirs := map[string]clustered{}, map[string]func(){}, map[string]string{}
	var mu sync.Mutex
	var starts sync.WaitGroup
	for _, name := range []string{"c1", "c2"} {
		dir := t.TempDir()
		dirs[name] = dir
		var yaml strings.Builder
		fmt.Fprintf(&yaml, "epoch: {interval: 250ms, guard: 1ms}\ndevice-configuration: {directory: %s, interval: 1s}\n"+
			"cluster: {name: fabric, member: %s, nats: {addresses: [%q], tls: {plaintext: true}}}\ndevices:\n", dir, name,
			server)
		for i, sw := range switches {
			fmt.Fprintf(&yaml, "  - {name: s%d, address: %[2]q, device-id: 1, pipeline: univmon-300k, tls: {plaintext: true}, "+
				"gnmi: {address: %[2]q, tls: {plaintext: true}, configure: enforce, ports: [{number: 1, "+
				"interface: p1}]}}\n", i+1, sw)
		}
		yaml.WriteString("hosts:\n")
		for i := range switches {
			fmt.Fprintf(&yaml, "  - {name: h%[1]d, port: s%[1]d/1, mac: \"02:00:00:00:00:0%[1]d\", "+
				"addresses: [10.0.0.%[1]d]}\n", i+1)
		}
		starts.Go(func() {
			c, stop := startMember(t, name, yaml.String())
			mu.Lock()
			defer mu.Unlock()
			members[name], stops[name] = c, stop
		})
	}
	starts.Wait()
	if len(members) < 2 {
		t.FailNow()
	}
	testkit.Until(t, "each switch is configured and has one owner", func() bool {
		return len(members["c1"].owns()) > 0 && len(members["c1"].owns())+len(members["c2"].owns()) == len(switches)
	})
	first := members["c1"].owns()[0] // a switch of c1
	reply, err := devconfig.Call(t.Context(), dirs["c2"], devconfig.Request{Command: "revert", Devices: []string{first}})
	if err != nil || !strings.Contains(reply.Error, "device "+first+" belongs to c1; run the command there") {
		t.Errorf("revert of %s at c2: %q, %v", first, reply.Error, err)
	}
	inEffect := func(member string) func() bool {
		return func() bool {
			rows := storetest.Rows(members[member].Store().View(), store.ParseQuery("", "/collector/devices/device"))
			return slices.ContainsFunc(rows, func(row string) bool {
				return strings.Contains(row, "["+first+"]") && strings.Contains(row, " configuration/state/status=IN_EFFECT")
			})
		}
	}
	testkit.Until(t, "c1 has configured the switch", inEffect("c1"))
	stops["c1"]()
	testkit.Until(t, "c2 has all switches", func() bool { return len(members["c2"].owns()) == len(switches) })
	testkit.Until(t, "c2 has compared the switch", inEffect("c2"))
	do := func(command string) devconfig.Reply {
		reply, err := devconfig.Call(t.Context(), dirs["c2"], devconfig.Request{Command: command, Devices: []string{first}})
		if err != nil || reply.Error != "" {
			t.Fatalf("%s of %s at c2: %q, %v", command, first, reply.Error, err)
		}
		return reply
	}
	if reply := do("revert"); len(reply.Applied) == 0 {
		t.Error("c2 has restored nothing of what c1 had set")
	}
	if changes := do("plan").Plans[0].Changes; len(changes) != 2 || changes[0].Before != nil || changes[1].Before != nil {
		t.Errorf("after revert, the plan is %+v; expected a device id and a number of a port, with nothing before", changes)
	}
}

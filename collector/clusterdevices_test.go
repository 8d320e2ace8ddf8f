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

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/collector/devconfig"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/storetest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/switchgnmi"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
	"github.com/netsketch/netsketch/yang"
)

// startUnconfigured starts a switch without a device id and without port numbers, and returns the
// address of its P4Runtime and gNMI server. written, if set, is called before each P4Runtime write.
func startUnconfigured(t *testing.T, written ...func(*softswitch.Switch, *p4v1.WriteRequest)) string {
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
	rpc := grpc.NewServer(append(p4rtserver.ServerOptions(), grpc.ChainUnaryInterceptor(func(ctx context.Context, req any,
		_ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if w, ok := req.(*p4v1.WriteRequest); ok {
			for _, f := range written {
				f(sw, w)
			}
		}
		return handler(ctx, req)
	}))...)
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

// Of two collectors, only the owner of a switch configures it. A command at the other collector
// names the owner. When the owner ends, the other collector restores the values from before the
// owner's changes.
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

// setDirectly sets boolean leaves and numbers of a switch over gNMI, as an operator would.
func setDirectly(t *testing.T, address string, leaves map[string]string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req := &gpb.SetRequest{}
	for path, value := range leaves {
		p, err := yang.ParsePath(path)
		if err != nil {
			t.Fatal(err)
		}
		req.Update = append(req.Update, &gpb.Update{Path: p,
			Val: &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(value)}}})
	}
	if _, err := gpb.NewGNMIClient(conn).Set(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// usedPorts are the ports to which the entries of a write forward.
func usedPorts(w *p4v1.WriteRequest) (ports []uint32) {
	for _, u := range w.GetUpdates() {
		a := u.GetEntity().GetTableEntry().GetAction().GetAction()
		if u.GetType() == p4v1.Update_DELETE || len(a.GetParams()) != 3 { // forward(port, src_mac, dst_mac)
			continue
		}
		port := uint32(0)
		for _, b := range a.GetParams()[0].GetValue() {
			port = port<<8 | uint32(b)
		}
		ports = append(ports, port)
	}
	return ports
}

// Routes use a port only after the port is enabled: whether or not the switch has ids when the
// collector starts, and whether a command, the collector or an operator configures the switch.
func TestPortsAreEnabledBeforeRoutesUseThem(t *testing.T) {
	const node = "/components/component[name=integrated-circuit0]/integrated-circuit/config/node-id"
	enabled := func(port int) string { return fmt.Sprintf("/interfaces/interface[name=p%d]/config/enabled", port) }
	id := func(port int) string { return fmt.Sprintf("/interfaces/interface[name=p%d]/config/id", port) }
	for name, c := range map[string]struct {
		mode   string
		before map[string]string // leaves that the switch has
		first  []uint32          // ports of the first routes, before a command
		enable string            // command, or a leaf that the operator sets
	}{
		"apply, without ids": {"apply", map[string]string{enabled(1): "false", enabled(2): "false"}, nil, "apply"},
		"apply, with ids": {"apply", map[string]string{node: `"1"`, id(1): "1", id(2): "2", enabled(2): "false"},
			[]uint32{1}, "apply"},
		"apply, with an id of the device": {"apply", map[string]string{node: `"1"`, enabled(1): "false", enabled(2): "false"},
			nil, "apply"},
		"apply, enabled by hand": {"apply", map[string]string{node: `"1"`, id(1): "1", id(2): "2", enabled(2): "false"},
			[]uint32{1}, enabled(2)},
		"enforce": {"enforce", map[string]string{node: `"1"`, id(1): "1", id(2): "2", enabled(2): "false"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			used := map[uint32]bool{}
			address := startUnconfigured(t, func(sw *softswitch.Switch, w *p4v1.WriteRequest) {
				mu.Lock()
				defer mu.Unlock()
				for _, port := range usedPorts(w) {
					used[port] = true
					if s, err := sw.PortStatus(port); err != nil || s.Disabled {
						t.Errorf("a route uses port %d, which is disabled (%v)", port, err)
					}
				}
			})
			setDirectly(t, address, c.before)
			dir := t.TempDir()
			cfg, err := config.Parse("netsketch.yaml", fmt.Appendf(nil, `
epoch: {interval: 250ms, guard: 1ms}
device-configuration: {directory: %q}
devices:
  - {name: s1, address: %[2]q, device-id: 1, pipeline: univmon-300k, forwarding: managed, tls: {plaintext: true},
     gnmi: {address: %[2]q, tls: {plaintext: true}, configure: %s,
       ports: [{number: 1, interface: p1}, {number: 2, interface: p2}]}}
hosts:
  - {name: h1, port: s1/1, mac: "02:00:00:00:00:01", addresses: [10.0.0.1]}
  - {name: h2, port: s1/2, mac: "02:00:00:00:00:02", addresses: [10.0.0.2]}
outputs: [{type: gnmi, address: "127.0.0.1:0", tls: {plaintext: true}}]
`, dir, address, c.mode))
			if err != nil {
				t.Fatal(err)
			}
			col, err := collector.New(cfg, collector.Dependencies{Programs: programs, Version: "test"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = col.Stop(context.Background()) }()
			if err := col.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			uses := func(ports ...uint32) func() bool {
				return func() bool {
					mu.Lock()
					defer mu.Unlock()
					return !slices.ContainsFunc(ports, func(p uint32) bool { return !used[p] })
				}
			}
			testkit.Until(t, "the first routes", uses(c.first...))
			switch c.enable {
			case "":
			case "apply":
				call := func(r devconfig.Request) devconfig.Reply {
					reply, err := devconfig.Call(t.Context(), dir, r)
					if err != nil || reply.Error != "" {
						t.Fatalf("%s: %q, %v", r.Command, reply.Error, err)
					}
					return reply
				}
				call(devconfig.Request{Command: "apply", Digest: call(devconfig.Request{Command: "plan"}).Plans[0].Digest})
			default:
				setDirectly(t, address, map[string]string{c.enable: "true"})
			}
			testkit.Until(t, "routes over both ports", uses(1, 2))
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

// Command network emulates a fat tree of soft switches, with packets between its hosts, for the
// example of a cluster. It writes the switches, links and hosts to a file, as sections of a
// collector's configuration. It ends with SIGINT or SIGTERM.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/p4/compiled"
)

// pipeline is the program of all switches.
const pipeline = "univmon-300k"

func main() {
	file := flag.String("config", "network.yaml", "`file` for the switches, links and hosts")
	rate := flag.Float64("rate", 1000, "packets per second of all hosts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *file, *rate); err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

func run(ctx context.Context, file string, rate float64) (err error) {
	fabric, err := lab.FatTree(4, 2, 2, 10*time.Microsecond) // ten switches, eight hosts
	if err != nil {
		return err
	}
	program, err := compiled.Load(pipeline)
	if err != nil {
		return err
	}
	var hosts []traffic.Host
	for _, h := range fabric.Hosts {
		hosts = append(hosts, traffic.Host{V4: h.V4, V6: h.V6, Site: h.Switch})
	}
	packets, err := traffic.Generate(traffic.Generated{Name: "flows", Seed: 1, Rate: rate, Flows: 500, Zipf: 1}, hosts)
	if err != nil {
		return err
	}
	n, err := lab.New(lab.Config{Fabric: fabric, Program: program, Seed: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	next := file + ".next" // a reader of the file sees all of it
	if err := errors.Join(os.WriteFile(next, []byte(configuration(n)), 0o600), os.Rename(next, file)); err != nil {
		return err
	}
	return n.Play(ctx, packets, math.MaxInt64)
}

// configuration returns the sections of a collector's configuration that describe a network.
func configuration(n *lab.Network) string {
	var b strings.Builder
	b.WriteString("devices:\n")
	for _, d := range n.Devices() {
		fmt.Fprintf(&b, "  - {name: %s, address: %q, device-id: %d, role: %s, pipeline: %s}\n", d.Name, d.Address,
			d.DeviceID, d.Role, pipeline)
	}
	port := func(i int, port uint32) string { return fmt.Sprintf("%s/%d", n.Fabric().Switches[i].Name, port) }
	b.WriteString("links:\n")
	for _, l := range n.Fabric().Links {
		fmt.Fprintf(&b, "  - {from: %s, to: %s}\n", port(l.A, l.PortA), port(l.B, l.PortB))
	}
	b.WriteString("hosts:\n")
	for _, h := range n.Fabric().Hosts {
		fmt.Fprintf(&b, "  - {name: %s, port: %s, addresses: [%q, %q]}\n", h.Name, port(h.Switch, h.Port), h.V4, h.V6)
	}
	return b.String()
}

// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"fmt"
	"net"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

// ByPacket returns how long the soft switch takes to read a bank of each register by packet.
func (t *Trial) ByPacket() (took time.Duration, _ error) {
	for _, r := range t.cat.Readouts() {
		d, err := t.readBank(r, 0, nil)
		if err != nil {
			return 0, err
		}
		took += d
	}
	return took, nil
}

// ByRegister returns how long a client takes to read a bank of each register by P4Runtime's
// RegisterEntry from a soft switch of this process: an empty bank, and one whose cells are all set
// to 0, because none of them is 0.
func (t *Trial) ByRegister(ctx context.Context) (empty, full time.Duration, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	sw := softswitch.New(softswitch.Config{})
	defer sw.Close()
	server := p4rtserver.New(sw, p4rtserver.Options{DeviceID: 1,
		Compile: func([]byte) (*softswitch.Program, error) { return t.compiled, nil }})
	defer server.Close()
	rpc := grpc.NewServer(p4rtserver.ServerOptions()...)
	p4v1.RegisterP4RuntimeServer(rpc, server)
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(l) }()
	defer func() { rpc.Stop(); <-served }()
	client, err := p4rt.Dial(ctx, p4rt.Config{Target: l.Addr().String(), DeviceID: 1, Mode: p4rt.Primary,
		Program: t.program})
	if err != nil {
		return 0, 0, err
	}
	defer client.Close()
	if err := client.WaitReady(ctx); err != nil {
		return 0, 0, fmt.Errorf("program %s: %w", t.program.Name, err)
	}
	var names []string
	for _, r := range t.cat.Readouts() {
		names = append(names, r.Name)
	}
	read := func() (time.Duration, error) {
		began := time.Now()
		cells, err := client.ReadBanks(ctx, 0, names...)
		for _, c := range cells {
			c.Release()
		}
		return time.Since(began), err
	}
	if _, err := read(); err != nil { // the first calls of a connection take longer
		return 0, 0, err
	}
	if empty, err = read(); err != nil {
		return 0, 0, err
	}
	for _, r := range t.cat.Readouts() {
		for cell := range r.Readout.Cells {
			if err := sw.WriteRegister(r.Name, cell, 1); err != nil {
				return 0, 0, err
			}
		}
	}
	full, err = read()
	return empty, full, err
}

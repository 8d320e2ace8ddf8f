// SPDX-License-Identifier: Apache-2.0

package all

import (
	"context"
	"log/slog"
	"net"

	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/collector/store"
)

type Set struct {
	*outputs.Group
	g *gn
}
type gn struct {
	c    *collector.Collector
	addr string
	lis  net.Listener
	rpc  *grpc.Server
}

func (g *gn) Name() string { return "gnmi" }
func (g *gn) Type() string { return "gnmi" }
func (g *gn) Start(s *store.Store) (err error) {
	if g.lis, err = net.Listen("tcp", g.addr); err != nil {
		return err
	}
	g.rpc = grpc.NewServer()
	srv, err := server.New(server.Options{Store: s, Schema: g.c.Schema, AnyTarget: true})
	if err != nil {
		return err
	}
	srv.Register(g.rpc)
	return nil
}
func (g *gn) Run(ctx context.Context) error {
	go func() { <-ctx.Done(); g.rpc.Stop() }()
	err := g.rpc.Serve(g.lis)
	if ctx.Err() != nil {
		return nil
	}
	return err
}
func (g *gn) State() outputs.State { return outputs.State{Status: outputs.Up} }

func (s *Set) Address(string) string { return s.g.lis.Addr().String() }

func Open(sec map[string]config.Section, c *collector.Collector, l *slog.Logger) (*Set, error) {
	v := struct {
		Address  string `yaml:"address"`
		Insecure bool   `yaml:"insecure"`
	}{}
	if err := sec["gnmi"].Decode(&v); err != nil {
		return nil, err
	}
	g := &gn{c: c, addr: v.Address}
	gr, err := outputs.NewGroup(c.Store(), l, 0, g)
	return &Set{gr, g}, err
}

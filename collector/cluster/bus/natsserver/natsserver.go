// SPDX-License-Identifier: Apache-2.0

// Package natsserver runs a NATS server in this process. A program that never runs a NATS server
// should not import this package, because it is large.
package natsserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/netsketch/netsketch/collector/cluster/bus"
)

// startTimeout bounds the start of the embedded server.
const startTimeout = 10 * time.Second

// Start starts the server of cfg.Embedded and waits until it accepts connections. It is the Serve
// of a bus.Config.
func Start(ctx context.Context, cfg bus.Config) (bus.Server, error) {
	e := cfg.Embedded
	host, port, err := split(e.Listen)
	if err != nil {
		return nil, fmt.Errorf("cluster.nats.embedded.listen: %w", err)
	}
	o := &server.Options{
		ServerName: cfg.Member, Host: host, Port: port, JetStream: true, StoreDir: e.Directory,
		NoSigs: true, DisableJetStreamBanner: true,
		Username: cfg.Username, Password: cfg.Password,
	}
	if e.RouteListen != "" {
		if host, port, err = split(e.RouteListen); err != nil {
			return nil, fmt.Errorf("cluster.nats.embedded.route-listen: %w", err)
		}
		o.Cluster = server.ClusterOpts{Name: cfg.Name, Host: host, Port: port, PoolSize: -1,
			Username: cfg.Username, Password: cfg.Password}
		for _, r := range e.Routes {
			u := &url.URL{Scheme: "nats", Host: r}
			if cfg.Username != "" {
				u.User = url.UserPassword(cfg.Username, cfg.Password)
			}
			o.Routes = append(o.Routes, u)
		}
	}
	s, err := server.NewServer(o)
	if err != nil {
		return nil, fmt.Errorf("cluster.nats.embedded: %w", err)
	}
	warn(cfg)
	s.SetLoggerV2(serverLog{cfg.Logger}, false, false, false)
	s.Start()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !s.ReadyForConnections(100 * time.Millisecond) {
		if ctx.Err() != nil || !s.Running() {
			s.Shutdown()
			s.WaitForShutdown()
			return nil, fmt.Errorf("cluster.nats.embedded: the server does not accept connections on %s; is the address "+
				"in use?", e.Listen)
		}
	}
	return s, nil
}

// warn logs the addresses at which other machines may reach a server without TLS.
func warn(cfg bus.Config) {
	for _, address := range []string{cfg.Embedded.Listen, cfg.Embedded.RouteListen} {
		if exposed(address) {
			cfg.Logger.Warn("the embedded NATS server has no TLS; whoever can reach it can read the traffic of the cluster: "+
				"use a loopback address, a network that others cannot reach, or servers with TLS (cluster.nats.addresses)",
				"address", address, "user", cfg.Username != "")
		}
	}
}

// exposed reports whether other machines may reach an address.
func exposed(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// split splits host:port.
func split(address string) (host string, port int, err error) {
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	if port, err = strconv.Atoi(number); err != nil || port < 0 || port > 65535 {
		return "", 0, errors.New("expected a port from 0 to 65535")
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// serverLog passes the server's log on: its notices are debug records.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(format string, v ...any) {
	l.log.Debug("nats: " + fmt.Sprintf(format, v...))
}
func (l serverLog) Warnf(format string, v ...any)  { l.log.Warn("nats: " + fmt.Sprintf(format, v...)) }
func (l serverLog) Errorf(format string, v ...any) { l.log.Error("nats: " + fmt.Sprintf(format, v...)) }
func (l serverLog) Fatalf(format string, v ...any) { l.log.Error("nats: " + fmt.Sprintf(format, v...)) }
func (l serverLog) Debugf(string, ...any)          {}
func (l serverLog) Tracef(string, ...any)          {}

// SPDX-License-Identifier: Apache-2.0

package bus

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
)

// startTimeout bounds the start of the embedded server.
const startTimeout = 10 * time.Second

// Embedded configures a NATS server in this process.
type Embedded struct {
	// Listen is the address for clients, host:port; an empty host is every interface.
	Listen string
	// Directory holds the streams and buckets; empty keeps them in memory of a temporary directory.
	Directory string
	// RouteListen is the address for the other servers, host:port; empty: the server is alone.
	RouteListen string
	// Routes are the RouteListen addresses of all servers.
	Routes []string
}

// start starts the server and waits until it accepts connections.
func (e *Embedded) start(ctx context.Context, cfg Config) (*server.Server, error) {
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

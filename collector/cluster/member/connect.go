// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
)

// starter starts the embedded NATS server.
type starter = func(context.Context, bus.Config) (bus.Server, error)

// natsConfig returns the connection of a configuration's cluster, without an embedded server. It
// reads the files of certificates and credentials.
func natsConfig(cfg config.Cluster, store *certs.Store) (out bus.Config, err error) {
	n := cfg.NATS
	out = bus.Config{Name: cfg.Name, Member: cfg.Member, Servers: n.Addresses, CredentialsFile: n.CredentialsFile,
		Username: n.Username, Password: n.Password.Reveal(), Replicas: n.Replicas}
	if len(n.Addresses) > 0 {
		if out.TLS, err = n.TLS.Client(store, n.Addresses[0]); err != nil {
			return out, fmt.Errorf("cluster.nats.tls: %w", err)
		}
	}
	if n.CredentialsFile != "" {
		if err := bus.CheckCredentials(n.CredentialsFile); err != nil {
			return out, fmt.Errorf("cluster.nats.credentials-file: %w", err)
		}
	}
	return out, nil
}

// Connect connects to the NATS servers of a cluster, and to the embedded server of a collector that
// runs already. logger may be nil.
func Connect(ctx context.Context, cfg config.Cluster, store *certs.Store, logger *slog.Logger) (*bus.Bus, error) {
	return dial(ctx, cfg, store, logger, nil)
}

// dial connects to the NATS servers of a cluster. With serve, it also runs the server that the
// configuration embeds.
func dial(ctx context.Context, cfg config.Cluster, store *certs.Store, logger *slog.Logger, serve starter) (*bus.Bus,
	error,
) {
	out, err := natsConfig(cfg, store)
	if err != nil {
		return nil, err
	}
	out.Logger = logger
	e := cfg.NATS.Embedded
	switch {
	case e.Listen == "":
	case serve == nil:
		out.Servers = append([]string{e.Listen}, cfg.NATS.Addresses...)
	default:
		if err := os.MkdirAll(e.Directory, 0o700); err != nil {
			return nil, fmt.Errorf("cluster.nats.embedded.directory: %w", err)
		}
		out.Serve, out.Embedded = serve, &bus.Embedded{Listen: e.Listen, Directory: e.Directory,
			RouteListen: e.RouteListen, Routes: e.Routes}
	}
	return bus.Connect(ctx, out)
}

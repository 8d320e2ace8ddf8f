// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/tls"
	"net"

	"github.com/netsketch/netsketch/internal/certs"
)

func (t TLS) files() certs.Files { return certs.Files{Cert: t.CertFile, Key: t.KeyFile, CA: t.CAFile} }

// Client returns the TLS configuration of a client that connects to address; nil for plaintext.
// Changed certificate files take effect for new connections.
func (t TLS) Client(store *certs.Store, address string) (*tls.Config, error) {
	if t.Plaintext {
		return nil, nil
	}
	host := t.ServerName
	if host == "" {
		host, _, _ = net.SplitHostPort(address) // the decoder has checked the form of address
	}
	c, err := store.Client(t.files(), host)
	if err != nil {
		return nil, err
	}
	c.ServerName = t.ServerName
	return c, nil
}

func (t AgentsTLS) files() certs.Files {
	return certs.Files{Cert: t.CertFile, Key: t.KeyFile, CA: t.ClientCAFile}
}

// Server returns the TLS configuration of the server for agents; nil for plaintext. Changed
// certificate files take effect for new connections.
func (t AgentsTLS) Server(store *certs.Store) (*tls.Config, error) {
	if t.Plaintext {
		return nil, nil
	}
	return store.Server(t.files())
}

// Certificates lists which certificates the sessions with devices, agents and NATS use.
func (c *Config) Certificates() []certs.Use {
	var out []certs.Use
	for _, d := range c.Devices {
		out = append(out, certs.Use{Name: "P4Runtime client of device " + d.Name, Files: d.TLS.files()},
			certs.Use{Name: "gNMI client of device " + d.Name, Files: d.GNMI.TLS.files()})
	}
	if c.Agents.Address != "" && !c.Agents.TLS.Plaintext {
		out = append(out, certs.Use{Name: "server of host agents", Server: true, Files: c.Agents.TLS.files()})
	}
	if n := c.Cluster.NATS; c.Cluster.Name != "" && !n.TLS.Plaintext {
		out = append(out, certs.Use{Name: "client of the cluster's NATS", Files: n.TLS.files()})
	}
	return out
}

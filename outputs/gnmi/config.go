// SPDX-License-Identifier: Apache-2.0

// The settings of the output.

package gnmi

import (
	"time"

	"github.com/netsketch/netsketch/collector/config"
)

// Config is the output's section of the configuration. The tags are those of package config.
type Config struct {
	// Address is where the server listens: host:port, ":9339" for every interface.
	Address string `yaml:"address" default:"127.0.0.1:9339" form:"listen"`
	// TLS secures connections.
	TLS TLSConfig `yaml:"tls"`
	// Username is required of every client, with the password, as gRPC metadata of these names.
	Username string `yaml:"username"`
	// Password is required of every client, with the username.
	Password config.Secret `yaml:"password"`

	// SampleInterval is the shortest interval between samples; a client that requests the shortest
	// gets this one.
	SampleInterval time.Duration `yaml:"sample-interval" default:"100ms" range:"1ms..1h"`
	// Atomic lists containers and lists that are sent whole, in notifications marked atomic,
	// whenever something in them changes: schema paths such as
	// /netsketch-univmon:univmon/summaries/summary/state.
	Atomic []string `yaml:"atomic"`
	// MaxStreams bounds the open subscriptions.
	MaxStreams int `yaml:"max-streams" default:"1024" range:"1.."`
	// MaxConnections bounds the connected clients; a client may have several subscriptions.
	MaxConnections int `yaml:"max-connections" default:"1024" range:"1.."`
	// MaxPaths bounds the paths of one request.
	MaxPaths int `yaml:"max-paths" default:"10000" range:"1.."`
	// MaxGetLeaves bounds the leaves in the answer to one Get.
	MaxGetLeaves int `yaml:"max-get-leaves" default:"200000" range:"1.."`
	// StopTimeout bounds the time that streams have to end when the collector stops.
	StopTimeout time.Duration `yaml:"stop-timeout" default:"3s" range:"0s.."`
}

// TLSConfig lists the files of a TLS server, in PEM form. Its keys are those of a device's session.
type TLSConfig struct {
	// Plaintext turns TLS off; without it cert-file and key-file are needed.
	Plaintext bool `yaml:"plaintext" default:"false"`
	// CertFile is the server's certificate, followed by those between it and the root.
	CertFile string `yaml:"cert-file" form:"file"`
	// KeyFile is the certificate's private key.
	KeyFile string `yaml:"key-file" form:"file"`
	// ClientCAFile holds the certificates to trust for clients; if given, clients need a
	// certificate.
	ClientCAFile string `yaml:"client-ca-file" form:"file"`
}

// DefaultConfig returns the default settings.
func DefaultConfig() Config { return config.Default[Config]() }

// Validate returns the errors that tags cannot express, joined: each a config.KeyError.
func (c *Config) Validate() error {
	var errs config.KeyErrors
	switch {
	case c.TLS.Plaintext && c.TLS != (TLSConfig{Plaintext: true}):
		errs.Add("tls.plaintext", "turns TLS off, yet other TLS keys are given; expected one or the other")
	case c.TLS.Plaintext:
	case c.TLS.CertFile == "":
		errs.Add("tls.cert-file", "is missing; expected a file with the server's certificate, or tls: {plaintext: true}")
	case c.TLS.KeyFile == "":
		errs.Add("tls.key-file", "is missing; expected a file with the certificate's private key")
	}
	if (c.Username == "") != (c.Password == "") {
		errs.Add("username", "expected username and password, or neither")
	}
	return errs.Err()
}

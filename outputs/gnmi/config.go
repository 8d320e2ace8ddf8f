// SPDX-License-Identifier: Apache-2.0

// Settings of the output.

package gnmi

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/netsketch/netsketch/collector/config"
)

// DefaultAddress is where the server listens unless the configuration says otherwise.
const DefaultAddress = "127.0.0.1:9339"

// Config is the output's section of the configuration.
type Config struct {
	// Address is where the server listens: host:port, ":9339" for every interface.
	Address string `yaml:"address"`
	// TLS is how connections are encrypted, or that they are not.
	TLS TLSConfig `yaml:"tls"`
	// Username and Password, when set, are asked of every client, as gRPC metadata of
	// these names.
	Username string        `yaml:"username"`
	Password config.Secret `yaml:"password"`

	// SampleInterval is the lowest interval between samples that is served, and what
	// a client gets that asks for the lowest.
	SampleInterval time.Duration `yaml:"sample-interval"`
	// Atomic names containers and lists that are sent whole, in notifications marked
	// atomic, whenever something in them changes: schema paths such as
	// /netsketch-univmon:univmon/summaries/summary/state.
	Atomic []string `yaml:"atomic"`
	// MaxStreams is how many subscriptions may be open at once.
	MaxStreams int `yaml:"max-streams"`
	// MaxConnections is how many clients may be connected at once; one may have several subscriptions.
	MaxConnections int `yaml:"max-connections"`
	// MaxPaths is how many paths one request may have.
	MaxPaths int `yaml:"max-paths"`
	// MaxGetLeaves is how many leaves the answer to one Get may have.
	MaxGetLeaves int `yaml:"max-get-leaves"`
	// StopTimeout is how long streams have to end when the collector stops.
	StopTimeout time.Duration `yaml:"stop-timeout"`
}

// Files implements what config.Section resolves relative names of files by.
func (c *Config) Files() []*string {
	return []*string{&c.TLS.CertFile, &c.TLS.KeyFile, &c.TLS.ClientCAFile}
}

// TLSConfig names the files of an encrypted server, in PEM form. Its keys are those of a device's session.
type TLSConfig struct {
	// Plaintext turns TLS off; without it cert-file and key-file are needed.
	Plaintext bool `yaml:"plaintext"`
	// CertFile is the server's certificate, followed by those between it and the root.
	CertFile string `yaml:"cert-file"`
	// KeyFile is its private key.
	KeyFile string `yaml:"key-file"`
	// ClientCAFile, when set, are the certificates that vouch for clients, who then need
	// one.
	ClientCAFile string `yaml:"client-ca-file"`
}

// DefaultConfig returns the settings that a configuration starts from.
func DefaultConfig() Config {
	return Config{
		Address:        DefaultAddress,
		SampleInterval: 100 * time.Millisecond,
		MaxStreams:     1024,
		MaxConnections: 1024,
		MaxPaths:       10_000,
		MaxGetLeaves:   200_000,
		StopTimeout:    3 * time.Second,
	}
}

// Validate returns everything that is wrong, joined: each a config.KeyError.
func (c *Config) Validate() error {
	var errs config.KeyErrors
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		errs.Add("address", "expected host:port, such as %s; found %q", DefaultAddress, c.Address)
	}
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
	if c.SampleInterval < time.Millisecond || c.SampleInterval > time.Hour {
		errs.Add("sample-interval", "expected 1ms to 1h; found %s", c.SampleInterval)
	}
	for key, v := range map[string]int{"max-streams": c.MaxStreams, "max-connections": c.MaxConnections, "max-paths": c.MaxPaths, "max-get-leaves": c.MaxGetLeaves} {
		if v < 1 {
			errs.Add(key, "expected at least 1; found %d", v)
		}
	}
	if c.StopTimeout < 0 {
		errs.Add("stop-timeout", "expected a time, or 0 for none; found %s", c.StopTimeout)
	}
	return errs.Err()
}

// tlsConfig loads the files; nil for plaintext.
func (c *Config) tlsConfig() (*tls.Config, error) {
	if c.TLS.Plaintext {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(c.TLS.CertFile, c.TLS.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls: certificate %s with key %s: %w", c.TLS.CertFile, c.TLS.KeyFile, err)
	}
	t := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if c.TLS.ClientCAFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(c.TLS.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("tls: client-ca-file: %w", err)
	}
	t.ClientCAs = x509.NewCertPool()
	if !t.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls: client-ca-file: %s has no certificate in PEM form", c.TLS.ClientCAFile)
	}
	t.ClientAuth = tls.RequireAndVerifyClientCert
	return t, nil
}

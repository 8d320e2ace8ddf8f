// SPDX-License-Identifier: Apache-2.0

// The settings of the output.

package web

import (
	"time"

	"github.com/netsketch/netsketch/outputs/access"
	"github.com/netsketch/netsketch/settings"
)

// Config is the output's section of the configuration. Package config describes the tags.
type Config struct {
	// Address is where the console listens: host:port, ":9341" for every interface.
	Address string `yaml:"address" default:"127.0.0.1:9341" form:"listen"`
	// TLS secures connections.
	TLS access.TLS `yaml:"tls"`
	// Username is required of every browser, with the password, by HTTP's basic authentication.
	Username string `yaml:"username" form:"line"`
	// Password is required of every browser, with the username.
	Password settings.Secret `yaml:"password" form:"line"`
	// Users are more logins, and the names of client certificates, each with the paths that the
	// user may read. Without users and username, every browser that can connect may read
	// everything.
	Users []access.User `yaml:"users"`

	// MaxStreams bounds the open subscriptions. A page has two.
	MaxStreams int `yaml:"max-streams" default:"256" range:"1.."`
	// MaxStreamsPerClient bounds the open subscriptions of a client address.
	MaxStreamsPerClient int `yaml:"max-streams-per-client" default:"64" range:"1.."`
	// MaxStreamsPerUser bounds the open subscriptions of a user: a login, or the name of a client
	// certificate.
	MaxStreamsPerUser int `yaml:"max-streams-per-user" default:"128" range:"1.."`
	// MaxConnections bounds the connections of all browsers.
	MaxConnections int `yaml:"max-connections" default:"512" range:"1.."`
	// MaxConnectionsPerClient bounds the connections of a client address.
	MaxConnectionsPerClient int `yaml:"max-connections-per-client" default:"128" range:"1.."`
	// MaxPaths bounds the paths of one subscription.
	MaxPaths int `yaml:"max-paths" default:"2000" range:"1.."`
	// WriteTimeout bounds the time that a browser may leave a part of a subscription unread. Until
	// then changes are coalesced for it; then its subscription ends.
	WriteTimeout time.Duration `yaml:"write-timeout" default:"30s" range:"1s..1h"`
	// StopTimeout bounds the time that subscriptions have to end when the collector stops.
	StopTimeout time.Duration `yaml:"stop-timeout" default:"3s" range:"0s.."`
}

// DefaultConfig returns the default settings.
func DefaultConfig() Config { return settings.Default[Config]() }

// Validate returns the errors that tags cannot express, joined: each a settings.KeyError.
func (c *Config) Validate() error {
	var errs settings.KeyErrors
	access.Check(&errs, c.TLS, c.Username, c.Password, c.Users)
	return errs.Err()
}

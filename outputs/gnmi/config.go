// SPDX-License-Identifier: Apache-2.0

// The settings of the output.

package gnmi

import (
	"time"

	"github.com/netsketch/netsketch/outputs/access"
	"github.com/netsketch/netsketch/settings"
)

// Config is the output's section of the configuration. Package config describes the tags.
type Config struct {
	// Address is where the server listens: host:port, ":9339" for every interface.
	Address string `yaml:"address" default:"127.0.0.1:9339" form:"listen"`
	// TLS secures connections.
	TLS access.TLS `yaml:"tls"`
	// Username is required of every client, with the password, as gRPC metadata of these names.
	Username string `yaml:"username" form:"line"`
	// Password is required of every client, with the username.
	Password settings.Secret `yaml:"password" form:"line"`

	// SampleInterval is the shortest interval between samples; a client that requests the shortest
	// gets this one.
	SampleInterval time.Duration `yaml:"sample-interval" default:"100ms" range:"1ms..1h"`
	// Atomic lists containers and lists that are sent whole, in notifications marked atomic, whenever
	// a leaf in them changes: schema paths such as
	// /netsketch-univmon:univmon/node-summaries/node-summary/state.
	Atomic []string `yaml:"atomic"`
	// Users are more logins, and the names of client certificates, each with the paths that the
	// user may read. Without users and username, every client that can connect may read
	// everything.
	Users []access.User `yaml:"users"`

	// MaxStreams bounds the open subscriptions. A stream counts from its first message on.
	MaxStreams int `yaml:"max-streams" default:"1024" range:"1.."`
	// MaxStreamsPerClient bounds the open subscriptions of a client address, and likewise its
	// streams without a first message: one more ends the oldest of these.
	MaxStreamsPerClient int `yaml:"max-streams-per-client" default:"256" range:"1.."`
	// MaxStreamsPerUser bounds the open subscriptions of a user: a login, or the name of a client
	// certificate.
	MaxStreamsPerUser int `yaml:"max-streams-per-user" default:"512" range:"1.."`
	// FirstMessageTimeout bounds the time until the first message of a stream.
	FirstMessageTimeout time.Duration `yaml:"first-message-timeout" default:"10s" range:"100ms..1h"`
	// PollIdleTimeout bounds the time between two Polls of a subscription in mode POLL.
	PollIdleTimeout time.Duration `yaml:"poll-idle-timeout" default:"1h" range:"1s.."`
	// MaxGets bounds the Gets that are being answered.
	MaxGets int `yaml:"max-gets" default:"64" range:"1.."`
	// MaxGetsPerClient bounds the Gets of a client address that are being answered.
	MaxGetsPerClient int `yaml:"max-gets-per-client" default:"16" range:"1.."`
	// MaxConnections bounds the connected clients; a client may have several subscriptions.
	MaxConnections int `yaml:"max-connections" default:"1024" range:"1.."`
	// MaxConnectionsPerClient bounds the connections of a client address.
	MaxConnectionsPerClient int `yaml:"max-connections-per-client" default:"256" range:"1.."`
	// MaxPaths bounds the paths of one request.
	MaxPaths int `yaml:"max-paths" default:"10000" range:"1.."`
	// MaxGetLeaves bounds the leaves in the answer to one Get.
	MaxGetLeaves int `yaml:"max-get-leaves" default:"200000" range:"1.."`
	// StopTimeout bounds the time that streams have to end when the collector stops.
	StopTimeout time.Duration `yaml:"stop-timeout" default:"3s" range:"0s.."`
}

// Validate returns the errors that tags cannot express, joined: each a settings.KeyError.
func (c *Config) Validate() error {
	var errs settings.KeyErrors
	access.Check(&errs, c.TLS, c.Username, c.Password, c.Users)
	return errs.Err()
}

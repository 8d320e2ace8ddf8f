// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
)

// Keepalive returns the pings of a connection to a switch. A switch that vanishes without closing
// the connection is noticed after Time and Timeout. gRPC servers end connections that ping more
// often than every 5 minutes, unless they are configured otherwise.
func Keepalive() keepalive.ClientParameters {
	return keepalive.ClientParameters{Time: 5*time.Minute + 10*time.Second, Timeout: 20 * time.Second}
}

// Endpoint is a switch's gNMI server and how to log in to it.
type Endpoint struct {
	// Address is host:port.
	Address string
	// TLS secures the connection; nil is plaintext.
	TLS *tls.Config
	// Username and Password are sent as metadata with every call when Username is not empty.
	Username, Password string
}

// EndpointOf returns the gNMI server of a configured switch. The error names the switch.
func EndpointOf(dev config.Device, certificates *certs.Store) (Endpoint, error) {
	g := dev.GNMI
	e := Endpoint{Address: g.Address, Username: g.Username, Password: g.Password.Reveal()}
	var err error
	if e.TLS, err = g.TLS.Client(certificates, g.Address); err != nil {
		return Endpoint{}, fmt.Errorf("device %s: gnmi: %w", dev.Name, err)
	}
	return e, nil
}

// Dial returns a connection to the switch for any gNMI call. Every call carries the credentials.
// The first call establishes the connection, never through a proxy of the environment. Options are
// applied after Dial's own.
func (e Endpoint) Dial(options ...grpc.DialOption) (*grpc.ClientConn, error) {
	transport := insecure.NewCredentials()
	if e.TLS != nil {
		transport = credentials.NewTLS(e.TLS)
	}
	own := []grpc.DialOption{
		grpc.WithTransportCredentials(transport), grpc.WithNoProxy(), grpc.WithKeepaliveParams(Keepalive()),
		grpc.WithDisableServiceConfig(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	}
	if e.Username != "" {
		own = append(own, grpc.WithPerRPCCredentials(login{e.Username, e.Password}))
	}
	conn, err := grpc.NewClient(e.Address, append(own, options...)...)
	if err != nil {
		return nil, fmt.Errorf("gNMI address %s: %w", e.Address, err)
	}
	return conn, nil
}

// login sends a user name and a password as metadata.
type login struct{ username, password string }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (l login) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"username": l.username, "password": l.password}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. The configuration decides
// whether a password may be sent in plaintext.
func (l login) RequireTransportSecurity() bool { return false }

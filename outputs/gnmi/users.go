// SPDX-License-Identifier: Apache-2.0

// Users: identified by the metadata and the connection of a call.

package gnmi

import (
	"context"
	"crypto/tls"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/outputs/access"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
)

// authorize returns a context with the user of a call. If users are configured, a client must log
// in as one of them: with username and password as metadata, or else by the name of its
// certificate.
func (o *Output) authorize(ctx context.Context) (context.Context, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	names, passwords := md.Get("username"), md.Get("password")
	var login *access.Login
	switch {
	case len(names) == 1 && len(passwords) == 1:
		login = &access.Login{Name: names[0], Password: passwords[0]}
	case len(names)+len(passwords) > 0:
		login = &access.Login{} // an incomplete or ambiguous login matches no user
	}
	if u, ok := o.users.Identify(login, tlsState(ctx)); ok {
		return access.WithUser(ctx, u), nil
	}
	err := status.Error(codes.Unauthenticated,
		"username or password is missing or wrong; both are expected as gRPC metadata")
	o.gnmi.Refused(server.Login, clientOf(ctx), err)
	return nil, err
}

// tlsState returns the TLS state of the client's connection; nil without TLS.
func tlsState(ctx context.Context) *tls.ConnectionState {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil
	}
	return &info.State
}

// clientOf describes a client whose user is not known.
func clientOf(ctx context.Context) string {
	text := "unknown"
	if p, ok := peer.FromContext(ctx); ok {
		text = "client " + server.Address(p.Addr)
	}
	if names := metadata.ValueFromIncomingContext(ctx, "username"); len(names) > 0 {
		text += ", user " + names[0][:min(len(names[0]), 100)]
	}
	return text
}

// SPDX-License-Identifier: Apache-2.0

// Users: who a client is.

package gnmi

import (
	"context"
	"crypto/subtle"
	"crypto/x509"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/outputs/gnmi/server"
)

// user is a configured user.
type user struct {
	server.User
	password string // "": the user is known by a certificate
}

// usersOf returns the users of a valid configuration.
func usersOf(c *Config) []user {
	var out []user
	if c.Username != "" {
		out = append(out, user{server.User{Name: c.Username}, c.Password.Reveal()})
	}
	for _, u := range c.Users {
		paths := make([]*gpb.Path, len(u.Paths))
		for i, p := range u.Paths {
			paths[i], _ = scope(p) // Validate has checked it
		}
		out = append(out, user{server.User{Name: u.Name, Paths: paths}, u.Password.Reveal()})
	}
	return out
}

// userKey is the key of a server.User in a context.
type userKey struct{}

// userOf returns the user that authorize has found.
func userOf(ctx context.Context) server.User {
	u, _ := ctx.Value(userKey{}).(server.User)
	return u
}

// authorize returns a context with the user of a call. If users are configured, a client must be
// one of them: by username and password as metadata, or without these by the name of its
// certificate.
func (o *Output) authorize(ctx context.Context) (context.Context, error) {
	u, ok := o.identify(ctx)
	if ok {
		return context.WithValue(ctx, userKey{}, u), nil
	}
	err := status.Error(codes.Unauthenticated,
		"username or password is missing or wrong; both are expected as gRPC metadata")
	o.gnmi.Refused(server.Login, clientOf(ctx), err)
	return nil, err
}

func (o *Output) identify(ctx context.Context) (server.User, bool) {
	md, _ := metadata.FromIncomingContext(ctx)
	names, passwords := md.Get("username"), md.Get("password")
	certificate := certificateName(ctx)
	switch {
	case len(o.users) == 0:
		return server.User{Name: certificate}, true
	case len(names) == 0 && len(passwords) == 0:
		for _, u := range o.users {
			if u.password == "" && u.Name == certificate {
				return u.User, true
			}
		}
	case len(names) == 1 && len(passwords) == 1:
		var found server.User
		match := 0
		for _, u := range o.users { // all of them: the time does not depend on the name
			if subtle.ConstantTimeCompare([]byte(u.Name), []byte(names[0]))&
				subtle.ConstantTimeCompare([]byte(u.password), []byte(passwords[0])) == 1 && u.password != "" {
				found, match = u.User, 1
			}
		}
		return found, match == 1
	}
	return server.User{}, false
}

// certificateName returns the name of the client's verified certificate; "" without one.
func certificateName(ctx context.Context) string {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return ""
	}
	return nameOf(info.State.VerifiedChains[0][0])
}

func nameOf(c *x509.Certificate) string {
	switch {
	case c.Subject.CommonName != "":
		return c.Subject.CommonName
	case len(c.URIs) > 0:
		return c.URIs[0].String()
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	case len(c.EmailAddresses) > 0:
		return c.EmailAddresses[0]
	}
	return ""
}

// clientOf describes a client that has no user yet.
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

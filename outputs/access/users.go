// SPDX-License-Identifier: Apache-2.0

// Users: who a client is.

package access

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"log/slog"

	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/yang"
)

// Users are the users of an output.
type Users []user

type user struct {
	server.User
	password string // "": the user is known by a certificate
}

// UsersOf returns the users of keys that Check has passed.
func UsersOf(username string, password settings.Secret, users []User) Users {
	var out Users
	if username != "" {
		out = append(out, user{server.User{Name: username}, password.Reveal()})
	}
	for _, u := range users {
		x := user{server.User{Name: u.Name}, u.Password.Reveal()}
		for _, p := range u.Paths {
			path, _ := scope(p) // Check has parsed the path
			x.Paths = append(x.Paths, path)
		}
		out = append(out, x)
	}
	return out
}

// Login is a username and a password that a client sent.
type Login struct{ Name, Password string }

// Identify returns the user of a client: by its login, or without one by its verified certificate.
// Without users, every client may read everything. It reports false for a client that is no user.
func (users Users) Identify(login *Login, state *tls.ConnectionState) (server.User, bool) {
	certificate := certificateName(state)
	switch {
	case len(users) == 0:
		return server.User{Name: certificate}, true
	case login == nil:
		for _, u := range users {
			if u.password == "" && u.Name == certificate {
				return u.User, true
			}
		}
		return server.User{}, false
	}
	var found server.User
	match := 0
	for _, u := range users { // compares all users, so that the time does not depend on the name
		if subtle.ConstantTimeCompare([]byte(u.Name), []byte(login.Name))&
			subtle.ConstantTimeCompare([]byte(u.password), []byte(login.Password)) == 1 && u.password != "" {
			found, match = u.User, 1
		}
	}
	return found, match == 1
}

// WarnUnknownPaths logs the paths of users that no module of the schema has.
func (users Users) WarnUnknownPaths(schema *yang.Schema, logger *slog.Logger) {
	for _, u := range users {
		for _, p := range u.Paths {
			if err := schema.CheckPath(nil, p); err != nil {
				logger.Warn("a user may read a path that no module has", "user", u.Name, "error", err)
			}
		}
	}
}

// certificateName returns the name of the client's verified certificate; "" without one.
func certificateName(state *tls.ConnectionState) string {
	if state == nil || len(state.VerifiedChains) == 0 {
		return ""
	}
	return nameOf(state.VerifiedChains[0][0])
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

type userKey struct{}

// WithUser returns a context with the user of a call.
func WithUser(ctx context.Context, u server.User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// UserOf returns the user of a context of WithUser. It is a server.Options.User.
func UserOf(ctx context.Context) server.User {
	u, _ := ctx.Value(userKey{}).(server.User)
	return u
}

// Clients returns the state of an output's clients from the number of open connections and the
// counts of its gNMI server.
func Clients(connections int, s server.Stats) outputs.Clients {
	return outputs.Clients{
		Connections: connections, Streams: s.Streams, StreamsWaiting: s.Waiting, Gets: s.Gets,
		ConnectionsRefused: s.RefusedBy[server.Connection], LoginsRefused: s.RefusedBy[server.Login],
		StreamsRefused: s.RefusedBy[server.Stream], GetsRefused: s.RefusedBy[server.Get],
		PathsRefused: s.RefusedBy[server.Path], RequestsRefused: s.Refused,
	}
}

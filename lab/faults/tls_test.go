// SPDX-License-Identifier: Apache-2.0

// Faults of certificates and credentials.

package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

const year = 365 * 24 * time.Hour

// mutual is a gNMI output that requires client certificates, with certificates of an authority.
var mutual = needs{
	tls: "tls: {cert-file: '{{.dir}}/server.pem', key-file: '{{.dir}}/server.key', client-ca-file: '{{.dir}}/ca.pem'}",
	before: func(t *trial) {
		t.authority = testkit.NewAuthority(t, "operators")
		t.authority.Write(t, t.dir, "ca.pem")
		t.authority.Issue(t, t.dir, "server", time.Now().Add(year))
	},
	credentials: func(t *trial) credentials.TransportCredentials { return t.client509(t.authority, "client", year) },
}

// client509 returns credentials with a client certificate that an authority issues.
func (t *trial) client509(by *testkit.Authority, name string, valid time.Duration) credentials.TransportCredentials {
	t.Helper()
	cert, key := by.Issue(t, t.dir, name, time.Now().Add(valid))
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return credentials.NewTLS(&tls.Config{RootCAs: t.authority.Pool(), Certificates: []tls.Certificate{pair}})
}

// capabilities connects anew and returns the code of the answer, and the server's certificate.
func (t *trial) capabilities(creds credentials.TransportCredentials, md ...string) (codes.Code, *x509.Certificate) {
	t.Helper()
	conn := t.dial(creds)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.client, md...), patience())
	defer cancel()
	var p peer.Peer
	_, err := gpb.NewGNMIClient(conn).Capabilities(ctx, &gpb.CapabilityRequest{}, grpc.Peer(&p))
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
		return status.Code(err), info.State.PeerCertificates[0]
	}
	return status.Code(err), nil
}

const certificate = "/collector/certificates/certificate[file=%s]/state/"

var tlsCases = []fault{
	{
		name:    "TLS: clients without, with a wrong and with an expired certificate",
		promise: "each is refused; a client with the right one is served and misses no epoch",
		needs:   mutual, back: 3,
		inject: func(t *trial) {
			other := testkit.NewAuthority(t, "others")
			matrix := []struct {
				name  string
				creds credentials.TransportCredentials
				want  codes.Code
			}{
				{"plaintext", insecure.NewCredentials(), codes.Unavailable},
				{"no certificate", credentials.NewTLS(&tls.Config{RootCAs: t.authority.Pool()}), codes.Unavailable},
				{"wrong authority", t.client509(other, "stranger", year), codes.Unavailable},
				{"expired", t.client509(t.authority, "expired", -time.Hour), codes.Unavailable},
				{"right", t.client509(t.authority, "right", year), codes.OK},
			}
			for _, m := range matrix {
				got, _ := t.capabilities(m.creds)
				t.require(got == m.want, "%s: %v, want %v", m.name, got, m.want)
				t.see("%s: %v", m.name, got)
			}
		},
	},
	{
		name:    "TLS: server certificate and clients' authority replaced",
		promise: "new connections get the new ones within four epochs; open streams miss no epoch",
		needs:   mutual, back: 3,
		inject: func(t *trial) {
			next := testkit.NewAuthority(t, "operators 2")
			next.Issue(t, t.dir, "server", time.Now().Add(year))
			next.Write(t, t.dir, "ca.pem")
			t.authority = next
			t.within(6, "a new client gets the new certificate", func() bool {
				code, cert := t.capabilities(t.client509(next, "new", year))
				return code == codes.OK && cert != nil && cert.Issuer.CommonName == "operators 2"
			})
			t.see("new connections have the new certificate")
		},
	},
	{
		name:    "TLS: server certificate expires",
		promise: "state and log show it 14 days before",
		needs: needs{tls: mutual.tls, credentials: mutual.credentials, before: func(t *trial) {
			mutual.before(t)
			t.authority.Issue(t, t.dir, "server", time.Now().Add(5*24*time.Hour))
		}},
		back: 3,
		inject: func(t *trial) {
			path := strings.Replace(certificate, "%s", t.dir+"/server.pem", 1)
			t.within(4, "the state is expiring", func() bool { return t.get(path+"status") == "EXPIRING" })
			t.see("status expiring, days-left %s", t.get(path+"days-left"))
			warned := t.collector.logged("level=WARN", "server.pem")
			t.require(warned == 1, "%d warnings in the log", warned)
		},
	},
	{
		name:    "clients: 300 refused logins",
		promise: "each is counted; the log has the client's address, at a bounded rate",
		needs: needs{gnmi: "username: ops\npassword: s3cret", credentials: func(t *trial) credentials.TransportCredentials {
			t.client = metadata.AppendToOutgoingContext(t.client, "username", "ops", "password", "s3cret")
			return insecure.NewCredentials()
		}},
		back: 3,
		inject: func(t *trial) {
			conn := t.stranger()
			for range 300 {
				ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "username", "ops",
					"password", "guess"), patience())
				_, err := gpb.NewGNMIClient(conn).Capabilities(ctx, &gpb.CapabilityRequest{})
				cancel()
				t.require(status.Code(err) == codes.Unauthenticated, "a wrong password: %v", err)
			}
			var n int
			t.within(3, "the log has the client's address", func() bool { n = t.collector.logged("127.0.0.2"); return n > 0 })
			t.see("%d lines in the log", n)
			t.require(n <= 3, "%d lines in the log", n)
			t.within(3, "300 refused logins are counted", func() bool {
				return t.get("/collector/outputs/output[name=gnmi]/clients/state/logins-refused") == "300"
			})
		},
	},
	{
		name:    "clients: a user reads paths beyond its own",
		promise: "each request is refused as a whole, and counted; the user's own paths are served",
		needs: needs{
			gnmi: "username: ops\npassword: s3cret\nusers: [{name: tenant, password: t3nant, paths: [/univmon/node-summaries]}]",
			credentials: func(t *trial) credentials.TransportCredentials {
				t.client = metadata.AppendToOutgoingContext(t.client, "username", "ops", "password", "s3cret")
				return insecure.NewCredentials()
			},
		},
		back: 3,
		inject: func(t *trial) {
			conn := t.stranger()
			tenant := metadata.AppendToOutgoingContext(context.Background(), "username", "tenant", "password", "t3nant")
			for path, want := range map[string]codes.Code{
				"/univmon/node-summaries": codes.OK, "/": codes.PermissionDenied, "/univmon": codes.PermissionDenied,
				"/univmon/*": codes.PermissionDenied, "/collector/state/name": codes.PermissionDenied,
				"/univmon/flows": codes.PermissionDenied,
			} {
				ctx, cancel := context.WithTimeout(tenant, patience())
				_, err := gpb.NewGNMIClient(conn).Get(ctx, t.request(path))
				cancel()
				t.require(status.Code(err) == want, "%s: %v, want %v", path, err, want)
			}
			t.within(3, "refused paths are counted", func() bool {
				return t.get("/collector/outputs/output[name=gnmi]/clients/state/paths-refused") == "5"
			})
			t.see("5 of 6 requests refused")
		},
	},
}

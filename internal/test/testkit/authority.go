// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority issues TLS certificates.
type Authority struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority with a new key.
func NewAuthority(tb testing.TB, name string) *Authority {
	tb.Helper()
	a := &Authority{key: newKey(tb)}
	a.Cert = sign(tb, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(365 * 24 * time.Hour),
	}, nil, &a.key.PublicKey, a.key)
	return a
}

// Pool returns the authority's certificate as roots to trust.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert)
	return pool
}

// Write writes the authority's certificate to a file of a directory and returns its name.
func (a *Authority) Write(tb testing.TB, directory, name string) string {
	tb.Helper()
	return writePEM(tb, directory, name, "CERTIFICATE", a.Cert.Raw)
}

// Issue writes a certificate for servers on 127.0.0.1 and for clients, NAME.pem, and its key,
// NAME.key. Its common name is name; dns are its DNS names.
func (a *Authority) Issue(tb testing.TB, directory, name string, notAfter time.Time, dns ...string) (certFile,
	keyFile string) {
	tb.Helper()
	key := newKey(tb)
	cert := sign(tb, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: notAfter,
		DNSNames:    dns,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.Cert, &key.PublicKey, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return writePEM(tb, directory, name+".pem", "CERTIFICATE", cert.Raw),
		writePEM(tb, directory, name+".key", "PRIVATE KEY", der)
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// sign completes and signs a certificate; parent nil signs it with its own key.
func sign(tb testing.TB, c, parent *x509.Certificate, public *ecdsa.PublicKey, by *ecdsa.PrivateKey) *x509.Certificate {
	tb.Helper()
	c.NotBefore = c.NotAfter.AddDate(-2, 0, 0)
	var err error
	if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		tb.Fatal(err)
	}
	if parent == nil {
		parent = c
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, parent, public, by)
	if err != nil {
		tb.Fatal(err)
	}
	out, err := x509.ParseCertificate(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// writePEM replaces a file by a rename, as tools that rotate certificates do.
func writePEM(tb testing.TB, directory, name, kind string, der []byte) string {
	tb.Helper()
	path := filepath.Join(directory, name)
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		tb.Fatal(err)
	}
	return path
}

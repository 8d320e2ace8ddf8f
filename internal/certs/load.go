// SPDX-License-Identifier: Apache-2.0

// Reading and checking the files of certificates.

package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/internal/files"
)

// names returns the files that are given.
func (f Files) names() []string {
	return slices.DeleteFunc([]string{f.Cert, f.Key, f.CA}, func(name string) bool { return name == "" })
}

// String returns the names of the files.
func (f Files) String() string { return strings.Join(f.names(), ", ") }

// material holds what a source's files contain. It is immutable.
type material struct {
	pair   *tls.Certificate // nil without Files.Cert
	pool   *x509.CertPool   // nil without Files.CA
	server *tls.Config      // TLS configuration of a server
	files  []file
	sum    [sha256.Size]byte // hash of all contents
	// skipped says which certificates cannot be read and are not used, one text a file.
	skipped []string
}

// file is a file of certificates.
type file struct {
	name  string
	leaf  *x509.Certificate // this end's own certificate; nil for authorities
	first *x509.Certificate // certificate that expires first
}

// load reads the files of a source. The error names the key of the configuration and the file.
func load(src source) (*material, error) {
	m := &material{}
	sum := sha256.New()
	if src.Cert != "" {
		cert, err := readPEM(src.Cert)
		if err != nil {
			return nil, fmt.Errorf("tls: cert-file: %w", err)
		}
		key, err := readPEM(src.Key)
		if err != nil {
			return nil, fmt.Errorf("tls: key-file of cert-file %s: %w", src.Cert, err)
		}
		chain, err := m.parse(src.Cert, cert)
		if err != nil {
			return nil, fmt.Errorf("tls: cert-file %s: %w", src.Cert, err)
		}
		pair, err := tls.X509KeyPair(encode(chain), key) // peers refuse a chain with a certificate that cannot be read
		if err != nil && encrypted.Match(key) {
			err = errors.New("the key is encrypted; expected one without a passphrase")
		}
		for i, c := range chain[1:] {
			if _, other := tls.X509KeyPair(encode(chain[i+1:i+2]), key); err != nil && other == nil {
				err = fmt.Errorf("the key is that of the certificate of %s, number %d in the file; put it first", c.Subject, i+2)
			}
		}
		if err != nil {
			if len(m.skipped) > 0 {
				err = fmt.Errorf("%w; certificates that cannot be read are not used: %s", err, strings.Join(m.skipped, ", "))
			}
			return nil, fmt.Errorf("tls: cert-file %s with key-file %s: %w", src.Cert, src.Key, err)
		}
		m.pair = &pair
		m.files = append(m.files, file{src.Cert, chain[0], firstToExpire(chain)})
		sum.Write(cert)
		sum.Write(key)
	}
	if src.CA != "" {
		key := "ca-file"
		if src.server {
			key = "client-ca-file"
		}
		text, err := readPEM(src.CA)
		if err != nil {
			return nil, fmt.Errorf("tls: %s: %w", key, err)
		}
		roots, err := m.parse(src.CA, text)
		if err != nil {
			return nil, fmt.Errorf("tls: %s %s: %w", key, src.CA, err)
		}
		m.pool = x509.NewCertPool()
		for _, c := range roots {
			m.pool.AddCert(c)
		}
		m.files = append(m.files, file{src.CA, nil, firstToExpire(roots)})
		sum.Write(text)
	}
	sum.Sum(m.sum[:0])
	if src.server {
		m.server = &tls.Config{MinVersion: tls.VersionTLS12, ClientCAs: m.pool}
		if m.pair != nil {
			m.server.Certificates = []tls.Certificate{*m.pair}
		}
		if m.pool != nil {
			m.server.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
	return m, nil
}

// encrypted matches private keys that need a passphrase.
var encrypted = regexp.MustCompile(`BEGIN ENCRYPTED PRIVATE KEY|Proc-Type: 4,ENCRYPTED`)

// joined matches files that were joined although the first one did not end with a newline.
var joined = regexp.MustCompile(`----------BEGIN `)

// readPEM reads a PEM file. encoding/pem passes over blocks that do not begin on a line of their
// own without a word, so readPEM removes byte order marks and parts files that were joined.
func readPEM(file string) ([]byte, error) {
	text, err := files.ReadText(file)
	if err != nil {
		return nil, err
	}
	text = bytes.ReplaceAll(text, []byte(files.Mark), nil)
	return joined.ReplaceAll(text, []byte("-----\n-----BEGIN ")), nil
}

// beginning matches the first line of certificates, also of OpenSSL's with additional trust.
var beginning = regexp.MustCompile(`-----BEGIN (TRUSTED |X509 )?CERTIFICATE-----`)

// worseThan returns an error if the own certificate is not valid now and the other material's
// certificate is. The file's further certificates do not count: a chain may end with an expired one
// that only old peers need.
func (m *material) worseThan(other *material, now time.Time) error {
	for i, f := range m.files {
		if f.leaf != nil && statusOf(f.leaf, now).invalid() && !statusOf(other.files[i].leaf, now).invalid() {
			return errors.New("tls: " + f.period())
		}
	}
	return nil
}

// period says when the own certificate of a file is valid.
func (f file) period() string {
	return fmt.Sprintf("cert-file %s: the certificate of %s is valid from %s to %s", f.name, f.leaf.Subject,
		f.leaf.NotBefore.UTC().Format(time.RFC3339), f.leaf.NotAfter.UTC().Format(time.RFC3339))
}

// parse returns the certificates of a PEM file, at least one. It skips certificates that cannot be
// read, so that one of them does not make a bundle useless.
func (m *material) parse(name string, text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	var first error
	blocks, skipped := 0, 0
	begun := len(beginning.FindAll(text, -1))
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		blocks++
		c, err := x509.ParseCertificate(block.Bytes)
		if err == nil {
			out = append(out, c)
			continue
		}
		skipped++
		if first == nil {
			first = fmt.Errorf("certificate %d: %w", blocks, err)
		}
	}
	if begun > blocks {
		skipped, blocks = skipped+begun-blocks, begun
		if first == nil {
			first = errors.New("a damaged block, or one of another kind than BEGIN CERTIFICATE")
		}
	}
	switch {
	case len(out) == 0 && first != nil:
		return nil, first
	case len(out) == 0:
		return nil, errors.New("the file contains no PEM certificate; a file in DER must be converted")
	case skipped > 0:
		m.skipped = append(m.skipped, fmt.Sprintf("%s: %d of %d; the first: %v", name, skipped, blocks, first))
	}
	return out, nil
}

// encode returns certificates as PEM.
func encode(chain []*x509.Certificate) (out []byte) {
	for _, c := range chain {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return out
}

func firstToExpire(certs []*x509.Certificate) *x509.Certificate {
	return slices.MinFunc(certs, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
}

// stamp is a digest of the bytes of each file, Cert, Key and CA, or of the error of reading it. It
// is zero for a file that is not given. Size and date do not suffice: a tool that restores dates
// can write another certificate of the same size with the same date.
type stamp [3][sha256.Size]byte

func stampOf(f Files) (at stamp) {
	for i, name := range []string{f.Cert, f.Key, f.CA} {
		if name == "" {
			continue
		}
		text, err := files.Read(name)
		if err != nil {
			text = []byte("error: " + err.Error())
		}
		at[i] = sha256.Sum256(text)
	}
	return at
}

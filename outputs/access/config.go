// SPDX-License-Identifier: Apache-2.0

// Package access decides who may connect to an output that serves clients, and which paths a user
// may read: TLS, users, and bounds on connections. The outputs gnmi and web share it.
//
// Concurrency: Users may be used from any goroutine; a Listener is a net.Listener.
package access

import (
	"errors"
	"fmt"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/yang"
)

// TLS lists the files of a TLS server, in PEM form, with the same keys as a device's session.
type TLS struct {
	// Plaintext turns TLS off; without it cert-file and key-file are needed.
	Plaintext bool `yaml:"plaintext" default:"false"`
	// CertFile is the server's certificate, followed by the intermediate certificates.
	CertFile string `yaml:"cert-file" form:"file"`
	// KeyFile is the certificate's private key.
	KeyFile string `yaml:"key-file" form:"file"`
	// ClientCAFile holds the certificates to trust for clients; if given, clients need a
	// certificate.
	ClientCAFile string `yaml:"client-ca-file" form:"file"`
}

// User is a login, or the name of a client certificate.
type User struct {
	// Name is the username, or the name of a client certificate: its common name, or its first
	// alternative name if it has none.
	Name string `yaml:"name" form:"line" required:"a username, or the name of a client certificate"`
	// Password is expected with the username. Without a password, the user is the client whose
	// certificate has the name.
	Password settings.Secret `yaml:"password" form:"line"`
	// Paths are the paths that the user may read, with everything below them, such as /univmon or
	// /interfaces/interface[name=Ethernet1]. Without paths, the user may read everything.
	Paths []string `yaml:"paths"`
}

// Check adds the errors of the keys tls, username, password and users that tags cannot express.
func Check(errs *settings.KeyErrors, t TLS, username string, password settings.Secret, users []User) {
	switch {
	case t.Plaintext && t != (TLS{Plaintext: true}):
		errs.Add("tls.plaintext", "turns TLS off, yet other TLS keys are given; expected one or the other")
	case t.Plaintext:
	case t.CertFile == "":
		errs.Add("tls.cert-file", "is missing; expected a file with the server's certificate, or tls: {plaintext: true}")
	case t.KeyFile == "":
		errs.Add("tls.key-file", "is missing; expected a file with the certificate's private key")
	}
	if (username == "") != (password == "") {
		errs.Add("username", "expected username and password, or neither")
	}
	names := map[string]bool{username: username != ""}
	for i, u := range users {
		at := fmt.Sprintf("users[%d]", i)
		if names[u.Name] {
			errs.Add(at+".name", "%q is already a user; expected unique names", u.Name)
		}
		names[u.Name] = true
		if u.Password == "" && t.ClientCAFile == "" {
			errs.Add(at+".password", "is missing; expected a password, or tls.client-ca-file for the names of certificates")
		}
		for j, p := range u.Paths {
			if _, err := scope(p); err != nil {
				errs.Add(fmt.Sprintf("%s.paths[%d]", at, j), "%s", err)
			}
		}
	}
}

// scope parses a path that a user may read. Names have no module.
func scope(text string) (*gpb.Path, error) {
	p, err := yang.ParsePath(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yang: "))
	}
	for _, e := range p.GetElem() {
		if _, name, found := strings.Cut(e.GetName(), ":"); found {
			e.Name = name
		}
		if e.GetName() == "*" || e.GetName() == "..." {
			return nil, fmt.Errorf("%s: wildcards can only be values of keys", text)
		}
	}
	return p, nil
}

// SPDX-License-Identifier: Apache-2.0

package certs_test

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a server and a client with certificates of their own authorities, in files.
type pair struct {
	t              *testing.T
	dir            string
	log            testkit.Log
	store          *certs.Store
	server, client *tls.Config
}

func nextYear() time.Time { return time.Now().AddDate(1, 0, 0) }

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, dir: t.TempDir()}
	p.rotateServer(testkit.NewAuthority(t, "servers 1"))
	p.rotateClient(testkit.NewAuthority(t, "clients 1"))
	p.store = certs.New(certs.Options{Logger: p.log.Logger(), Interval: 10 * time.Millisecond})
	p.store.Start()
	t.Cleanup(p.store.Stop)
	var err error
	if p.server, err = p.store.Server(p.files("server", "clients-ca")); err != nil {
		t.Fatal(err)
	}
	if p.client, err = p.store.Client(p.files("client", "servers-ca"), "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	p.store.Declare("test", certs.Use{Name: "server of output gnmi", Server: true, Files: p.files("server", "clients-ca")},
		certs.Use{Name: "P4Runtime client of device leaf1", Files: p.files("client", "servers-ca")})
	return p
}

func (p *pair) files(name, ca string) certs.Files {
	at := func(file string) string { return filepath.Join(p.dir, file) }
	return certs.Files{Cert: at(name + ".pem"), Key: at(name + ".key"), CA: at(ca + ".pem")}
}

func (p *pair) rotateServer(a *testkit.Authority) {
	a.Write(p.t, p.dir, "servers-ca.pem")
	a.Issue(p.t, p.dir, "server", nextYear())
}

func (p *pair) rotateClient(a *testkit.Authority) {
	a.Write(p.t, p.dir, "clients-ca.pem")
	a.Issue(p.t, p.dir, "client", nextYear())
}

// handshake connects a client to a server and exchanges a byte in each direction. It returns both
// errors and the certificates that the ends presented.
func handshake(t *testing.T, server, client *tls.Config) (presented [2]string, clientErr, serverErr error) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	var work sync.WaitGroup
	work.Go(func() {
		conn, err := lis.Accept()
		if err != nil {
			serverErr = err
			return
		}
		defer conn.Close()
		s := tls.Server(conn, server)
		if _, serverErr = s.Read(make([]byte, 1)); serverErr != nil {
			return
		}
		if certs := s.ConnectionState().PeerCertificates; len(certs) > 0 {
			presented[1] = certs[0].Issuer.CommonName
		}
		_, serverErr = s.Write([]byte{1})
	})
	conn, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client = client.Clone()
	if client.ServerName == "" { // as gRPC does
		client.ServerName = "127.0.0.1"
	}
	c := tls.Client(conn, client)
	if _, clientErr = c.Write([]byte{1}); clientErr == nil {
		presented[0] = c.ConnectionState().PeerCertificates[0].Issuer.CommonName
		_, clientErr = c.Read(make([]byte, 1))
	}
	conn.Close()
	work.Wait()
	return presented, clientErr, serverErr
}

// connects waits until handshakes succeed and present certificates of these authorities.
func (p *pair) connects(server, client string) {
	p.t.Helper()
	testkit.Until(p.t, "a handshake with certificates of "+server+" and "+client, func() bool {
		presented, clientErr, serverErr := handshake(p.t, p.server, p.client)
		return clientErr == nil && serverErr == nil && presented == [2]string{server, client}
	})
}

// Both ends follow a rotation of all their files.
func TestRotation(t *testing.T) {
	p := newPair(t)
	p.connects("servers 1", "clients 1")
	p.rotateServer(testkit.NewAuthority(t, "servers 2"))
	p.connects("servers 2", "clients 1")
	p.rotateClient(testkit.NewAuthority(t, "clients 2"))
	p.connects("servers 2", "clients 2")
	for _, use := range []string{"server of output gnmi", "P4Runtime client of device leaf1"} {
		if !strings.Contains(p.log.String(), `msg="new certificates are used for new connections" use="`+use) {
			t.Errorf("the log lacks the rotation of %s:\n%s", use, &p.log)
		}
	}
}

// An end that is not to be trusted is refused before and after a rotation.
func TestUntrusted(t *testing.T) {
	p := newPair(t)
	stranger := testkit.NewAuthority(t, "stranger")
	cert, key := stranger.Issue(t, t.TempDir(), "stranger", nextYear())
	other := certs.New(certs.Options{})
	wrongClient, err := other.Client(certs.Files{Cert: cert, Key: key, CA: p.files("", "servers-ca").CA},
		"127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	wrongServer, err := other.Server(certs.Files{Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	wrongHost, err := other.Client(p.files("client", "servers-ca"), "127.0.0.9")
	if err != nil {
		t.Fatal(err)
	}
	wrongHost.ServerName = "127.0.0.9"
	noClient, err := other.Client(certs.Files{CA: p.files("", "servers-ca").CA}, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, err := handshake(t, p.server, wrongClient); err == nil {
			t.Error("a client of another authority is accepted")
		}
		if _, _, err := handshake(t, p.server, noClient); err == nil {
			t.Error("a client without a certificate is accepted")
		}
		if _, err, _ := handshake(t, wrongServer, p.client); err == nil ||
			!strings.Contains(err.Error(), "unknown authority") {
			t.Errorf("a server of another authority: %v", err)
		}
		if _, err, _ := handshake(t, p.server, wrongHost); err == nil || !strings.Contains(err.Error(), "127.0.0.9") {
			t.Errorf("a certificate for another address: %v", err)
		}
		p.store.Reload()
	}
}

// Broken files leave the certificates in force. The problem is logged once, with the file, and is
// part of the state until the files are usable.
func TestBrokenFiles(t *testing.T) {
	a := testkit.NewAuthority(t, "a")
	for name, tc := range map[string]struct {
		spoil func(p *pair)
		want  string
	}{
		"not PEM": {func(p *pair) { p.write("server.pem", "not PEM") }, "server.pem"},
		"no file": {func(p *pair) { p.remove("server.pem") }, "server.pem: no such file"},
		"another key": {func(p *pair) {
			a.Issue(p.t, p.dir, "other", nextYear())
			p.rename("other.key", "server.key")
		}, "private key does not match public key"},
		"expired": {func(p *pair) { a.Issue(p.t, p.dir, "server", time.Now().Add(-time.Hour)) },
			"server.pem: the certificate of CN=server is valid from"},
		"no authority": {func(p *pair) { p.write("clients-ca.pem", "") },
			"clients-ca.pem: the file contains no PEM certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			p.connects("servers 1", "clients 1")
			tc.spoil(p)
			var problem string
			testkit.Until(t, "a problem in the state", func() bool {
				problem = p.state("server.pem").Problem + p.state("clients-ca.pem").Problem
				return problem != ""
			})
			if !strings.Contains(problem, tc.want) || !strings.Contains(problem, p.dir) {
				t.Errorf("problem %q; expected %q", problem, tc.want)
			}
			p.connects("servers 1", "clients 1")
			if other := p.state("clients-ca.pem").Problem; other != "" && other == p.state("server.pem").Problem {
				t.Errorf("a problem of one file is the problem of another: %s", other)
			}
			time.Sleep(50 * time.Millisecond) // several checks
			if n := strings.Count(p.log.String(), "level=ERROR"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, &p.log)
			}
			p.rotateServer(testkit.NewAuthority(t, "servers 2"))
			p.rotateClient(testkit.NewAuthority(t, "clients 2"))
			p.connects("servers 2", "clients 2")
			if st := p.state("server.pem"); st.Problem != "" {
				t.Errorf("state %+v", st)
			}
		})
	}
}

func (p *pair) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) remove(name string) {
	p.t.Helper()
	if err := os.Remove(filepath.Join(p.dir, name)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) rename(from, to string) {
	p.t.Helper()
	if err := os.Rename(filepath.Join(p.dir, from), filepath.Join(p.dir, to)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) state(name string) certs.State {
	for _, s := range p.store.States() {
		if filepath.Base(s.File) == name {
			return s
		}
	}
	return certs.State{}
}

// use loads and declares the files of a server.
func use(t *testing.T, s *certs.Store, f certs.Files) {
	t.Helper()
	if _, err := s.Server(f); err != nil {
		t.Fatal(err)
	}
	s.Declare("test", certs.Use{Name: "server of output gnmi", Server: true, Files: f})
}

// Reload does not wait for a check.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	cert, key := testkit.NewAuthority(t, "a").Issue(t, dir, "server", nextYear())
	s := certs.New(certs.Options{})
	use(t, s, certs.Files{Cert: cert, Key: key})
	later := nextYear().AddDate(1, 0, 0)
	testkit.NewAuthority(t, "b").Issue(t, dir, "server", later)
	s.Reload()
	if got := s.States()[0].NotAfter; got.Before(later.Add(-time.Second)) {
		t.Errorf("the certificate expires %v, expected %v", got, later)
	}
}

// Expiry is logged at the start and once per change.
func TestExpiry(t *testing.T) {
	dir := t.TempDir()
	a := testkit.NewAuthority(t, "a")
	notAfter := nextYear().Truncate(time.Second)
	cert, key := a.Issue(t, dir, "server", notAfter)
	ca := a.Write(t, dir, "ca.pem")
	var log testkit.Log
	var mu sync.Mutex
	now := notAfter.Add(-15 * 24 * time.Hour)
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	changes := make(chan struct{}, 100)
	s := certs.New(certs.Options{Logger: log.Logger(), Now: clock, Interval: time.Millisecond,
		OnChange: func() { changes <- struct{}{} }})
	use(t, s, certs.Files{Cert: cert, Key: key, CA: ca})
	state := func() certs.State {
		for _, st := range s.States() {
			if st.File == cert {
				return st
			}
		}
		return certs.State{}
	}
	want := certs.State{File: cert, Use: "server of output gnmi", Subject: "CN=server", NotAfter: notAfter, DaysLeft: 15,
		Status: certs.Valid}
	compare := func() {
		t.Helper()
		if diff := cmp.Diff(want, state(), cmpopts.IgnoreUnexported(certs.State{})); diff != "" {
			t.Error(diff)
		}
	}
	compare()
	if log.String() != "" {
		t.Errorf("a valid certificate is logged:\n%s", &log)
	}
	s.Start()
	defer s.Stop()
	advance := func(to time.Time) {
		mu.Lock()
		now = to
		mu.Unlock()
		<-changes
	}
	advance(notAfter.Add(-13*24*time.Hour - time.Minute))
	want.Status, want.DaysLeft = certs.Expiring, 13
	compare()
	advance(notAfter.Add(time.Minute))
	want.Status, want.DaysLeft = certs.Expired, -1
	compare()
	for line, n := range map[string]int{
		`level=WARN msg="certificate expires soon" use="server of output gnmi" file=` + cert: 1,
		`level=ERROR msg="certificate has expired" use="server of output gnmi" file=` + cert: 1,
	} {
		if got := strings.Count(log.String(), line); got != n {
			t.Errorf("%q is logged %d times:\n%s", line, got, &log)
		}
	}
	// A new process logs the expiry at its start.
	var again testkit.Log
	use(t, certs.New(certs.Options{Logger: again.Logger(), Now: clock}), certs.Files{Cert: cert, Key: key})
	if !strings.Contains(again.String(), "certificate has expired") {
		t.Errorf("at the start:\n%s", &again)
	}
}

// Uses share files, and files without a use are not part of the state. Files that are loaded for a
// configuration that is not applied leave those in force as they are.
func TestUses(t *testing.T) {
	dir := t.TempDir()
	ca := testkit.NewAuthority(t, "a").Write(t, dir, "ca.pem")
	other := testkit.NewAuthority(t, "b").Write(t, dir, "other.pem")
	s := certs.New(certs.Options{})
	loaded := func(name string) certs.Use {
		t.Helper()
		f := certs.Files{CA: name}
		if _, err := s.Client(f, "127.0.0.1"); err != nil {
			t.Fatal(err)
		}
		return certs.Use{Files: f}
	}
	states := func() (out []string) {
		for _, st := range s.States() {
			out = append(out, filepath.Base(st.File)+": "+st.Use)
		}
		return out
	}
	a, b, c := loaded(ca), loaded(ca), loaded(other)
	a.Name, b.Name, c.Name = "a", "b", "c"
	for _, step := range []struct {
		declare func()
		want    []string
	}{
		{func() {}, nil},
		{func() { s.Declare("devices", b, a) }, []string{"ca.pem: a, b"}},
		{func() { loaded(other) }, []string{"ca.pem: a, b"}},
		{func() { s.Declare("outputs", c) }, []string{"ca.pem: a, b", "other.pem: c"}},
		{func() { s.Declare("devices", a) }, []string{"ca.pem: a", "other.pem: c"}},
		{func() { s.Declare("devices") }, []string{"other.pem: c"}},
	} {
		step.declare()
		if diff := cmp.Diff(step.want, states()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	s := certs.New(certs.Options{})
	for want, f := range map[string]certs.Files{
		"tls: cert-file: open none.pem":                      {Cert: "none.pem", Key: "none.key"},
		"tls: key-file of cert-file certs.go: open none.key": {Cert: "certs.go", Key: "none.key"},
		"tls: client-ca-file certs.go: th":                   {CA: "certs.go"},
	} {
		if _, err := s.Server(f); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v; expected %q", err, want)
		}
	}
	if _, err := s.Client(certs.Files{CA: "none"}, ""); err == nil ||
		!strings.HasPrefix(err.Error(), "tls: ca-file: open none") {
		t.Errorf("error %v", err)
	}
	if n := len(s.States()); n != 0 {
		t.Errorf("%d states of files that were not loaded", n)
	}
}

// TestUnreadableCertificates: a bundle with a certificate that Go does not read works without it,
// with one warning; a bundle with no other is an error.
func TestUnreadableCertificates(t *testing.T) {
	p := newPair(t)
	ca := filepath.Join(p.dir, "servers-ca.pem")
	good, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(good)
	serial := bytes.Index(block.Bytes, []byte{0xa0, 3, 2, 1, 2, 2}) + 7 // behind version, type and length
	bad := bytes.Clone(block.Bytes)
	bad[serial] |= 0x80
	negative := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: bad})
	if err := os.WriteFile(ca, slices.Concat(negative, good), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := p.store.Client(certs.Files{CA: ca}, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{p.certificate("server")}}
	if _, err, _ := handshake(t, server, client); err != nil {
		t.Errorf("handshake: %v", err)
	}
	if log := p.log.String(); strings.Count(log, "certificates that cannot be read are not used") != 1 ||
		!strings.Contains(log, "1 of 2; the first: certificate 1: x509: negative serial number") {
		t.Errorf("log %s", log)
	}
	if w := p.store.Warnings(); len(w) != 1 || !strings.Contains(w[0], "servers-ca.pem: 1 of 2; the first: ") {
		t.Errorf("warnings %q", w)
	}
	p.store.Declare("test", certs.Use{Name: "test", Files: certs.Files{CA: ca}})
	for n, bundle := range [][]byte{good, slices.Concat(negative, good), slices.Concat(negative, good)} {
		if err := os.WriteFile(ca, bundle, 0o600); err != nil {
			t.Fatal(err)
		}
		p.store.Reload()
		if logged := strings.Count(p.log.String(), "certificates that cannot be read are not used"); logged != 1+min(n, 1) {
			t.Errorf("bundle %d: %d warnings", n, logged)
		}
	}
	if err := os.WriteFile(ca+".bad", negative, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.store.Client(certs.Files{CA: ca + ".bad"}, ""); err == nil ||
		!strings.Contains(err.Error(), "negative serial number") {
		t.Errorf("error %v", err)
	}
}

// TestOddPEM: each certificate of a file is used, or its loss is a warning.
func TestOddPEM(t *testing.T) {
	p := newPair(t)
	good, err := os.ReadFile(filepath.Join(p.dir, "servers-ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(string(good))
	other, err := os.ReadFile(filepath.Join(p.dir, "clients-ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ text, warning string }{
		"byte order mark":      {"\ufeff" + text, ""},
		"byte order marks":     {"\ufeff" + string(other) + "\ufeff" + text, ""},
		"CRLF":                 {strings.ReplaceAll(text, "\n", "\r\n"), ""},
		"joined":               {string(bytes.TrimSpace(other)) + text, ""},
		"joined the other way": {text + string(other), ""},
		"with text":            {"Subject: CN=a\n" + text + "\n# end\n", ""},
		"a block without end":  {string(other[:len(other)/2]) + "\n" + text, "1 of 2; the first: a damaged block"},
		"indented":             {text + "\n  " + string(other), "1 of 2; the first: a damaged block"},
		"trusted": {text + "\n" + strings.ReplaceAll(string(other), " CERTIFICATE", " TRUSTED CERTIFICATE"),
			"1 of 2; the first: a damaged block, or one of another kind"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			client, err := p.store.Client(certs.Files{CA: file}, "127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			server := &tls.Config{Certificates: []tls.Certificate{p.certificate("server")}}
			if _, err, _ := handshake(t, server, client); err != nil {
				t.Errorf("handshake: %v", err)
			}
			at := strings.Index(p.log.String(), file)
			if (at >= 0) != (test.warning != "") || !strings.Contains(p.log.String()[max(at, 0):], test.warning) {
				t.Errorf("log %s", p.log.String())
			}
		})
	}
}

// TestOddChains: what stands beside the own certificate in its file does no harm.
func TestOddChains(t *testing.T) {
	p := newPair(t)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(p.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	leaf, key := read("server.pem"), read("server.key")
	block, _ := pem.Decode([]byte(leaf))
	bad := bytes.Clone(block.Bytes)
	bad[bytes.Index(bad, []byte{0xa0, 3, 2, 1, 2, 2})+7] |= 0x80 // a negative serial number
	negative := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: bad}))
	empty := "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
	dir := t.TempDir()
	old, _ := testkit.NewAuthority(t, "old").Issue(t, dir, "old", time.Now().Add(-time.Hour))
	expired, err := os.ReadFile(old)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ chain, key, warning, err string }{
		"an unreadable certificate": {leaf + negative, key, "1 of 2; the first: certificate 2: x509: negative", ""},
		"before it":                 {negative + leaf, key, "1 of 2; the first: certificate 1: x509: negative", ""},
		"an empty block":            {leaf + empty, key, "1 of 2; the first: certificate 2", ""},
		"the key":                   {key + leaf, leaf + key, "", ""},
		"twice":                     {leaf + leaf, key, "", ""},
		"expired":                   {leaf + string(expired), key, "", ""},
		"the own one last":          {string(expired) + leaf, key, "", "CN=server, number 2 in the file; put it first"},
		"CRLF":                      {strings.ReplaceAll(leaf, "\n", "\r\n"), strings.ReplaceAll(key, "\n", "\r\n"), "", ""},
		"DER":                       {string(block.Bytes), key, "", "a file in DER must be converted"},
		"only an empty block":       {empty, key, "", "certificate 1: x509: malformed"},
		"no key":                    {leaf, empty, "", "a certificate rather than a key"},
	} {
		t.Run(name, func(t *testing.T) {
			files := certs.Files{Cert: filepath.Join(t.TempDir(), "server.pem"), Key: filepath.Join(t.TempDir(), "server.key"),
				CA: filepath.Join(p.dir, "clients-ca.pem")}
			for name, text := range map[string]string{files.Cert: test.chain, files.Key: test.key} {
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			server, err := p.store.Server(files)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, clientErr, serverErr := handshake(t, server, p.client); clientErr != nil || serverErr != nil {
				t.Errorf("handshake: %v, %v", clientErr, serverErr)
			}
			at := strings.Index(p.log.String(), files.Cert)
			if (at >= 0) != (test.warning != "") || !strings.Contains(p.log.String()[max(at, 0):], test.warning) {
				t.Errorf("log %s", p.log.String())
			}
		})
	}
	// A renewed certificate comes into force although an expired one stands beside it.
	p.rotateServer(testkit.NewAuthority(t, "servers 2"))
	chain := []byte(read("server.pem") + string(expired))
	if err := os.WriteFile(filepath.Join(p.dir, "server.pem"), chain, 0o600); err != nil {
		t.Fatal(err)
	}
	p.connects("servers 2", "clients 1")
}

// An encrypted key is named as such.
func TestEncryptedKey(t *testing.T) {
	p := newPair(t)
	file := filepath.Join(t.TempDir(), "a.key")
	block := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{0x30, 0}})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := p.store.Server(certs.Files{Cert: filepath.Join(p.dir, "server.pem"), Key: file})
	if err == nil || !strings.Contains(err.Error(), "the key is encrypted") {
		t.Errorf("error %v", err)
	}
}

// A certificate, key or bundle that was saved as UTF-16 is named as such.
func TestUTF16(t *testing.T) {
	p := newPair(t)
	file := filepath.Join(t.TempDir(), "a.pem")
	if err := os.WriteFile(file, []byte("\xff\xfe-\x00-\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(p.dir, "server.pem"), filepath.Join(p.dir, "server.key")
	for name, files := range map[string]certs.Files{"certificate": {Cert: file, Key: key}, "key": {Cert: cert, Key: file},
		"bundle": {Cert: cert, Key: key, CA: file}} {
		_, err := p.store.Server(files)
		if err == nil || !strings.Contains(err.Error(), file+" is UTF-16; save it as UTF-8") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// certificate is a certificate of the directory.
func (p *pair) certificate(name string) tls.Certificate {
	p.t.Helper()
	c, err := tls.LoadX509KeyPair(filepath.Join(p.dir, name+".pem"), filepath.Join(p.dir, name+".key"))
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// Both ends follow certificates that a symbolic link exchanges together, as Kubernetes does with
// ..data.
func TestRotationByLink(t *testing.T) {
	p := newPair(t)
	p.connects("servers 1", "clients 1")
	old := filepath.Join(p.dir, "..1")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	point := func(to string) {
		if err := os.Symlink(to, filepath.Join(p.dir, "..new")); err != nil {
			t.Fatal(err)
		}
		p.rename("..new", "..data")
	}
	for _, f := range files {
		if f.IsDir() {
			continue
		}
		p.rename(f.Name(), filepath.Join("..1", f.Name()))
		if err := os.Symlink(filepath.Join("..data", f.Name()), filepath.Join(p.dir, f.Name())); err != nil {
			t.Fatal(err)
		}
	}
	point("..1")
	p.connects("servers 1", "clients 1")
	second := &pair{t: t, dir: filepath.Join(p.dir, "..2")}
	if err := os.CopyFS(second.dir, os.DirFS(old)); err != nil {
		t.Fatal(err)
	}
	second.rotateServer(testkit.NewAuthority(t, "servers 2"))
	second.rotateClient(testkit.NewAuthority(t, "clients 2"))
	point("..2")
	if err := os.RemoveAll(old); err != nil {
		t.Fatal(err)
	}
	p.connects("servers 2", "clients 2")
}

// Both ends follow files that are written in place with the same size and date, as by tools that
// restore dates.
func TestRotationWithSameSizeAndDate(t *testing.T) {
	p := newPair(t)
	write := func() {
		t.Helper()
		for _, name := range []string{"server.pem", "server.key", "client.pem", "client.key", "servers-ca.pem",
			"clients-ca.pem"} {
			file := filepath.Join(p.dir, name)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, bytes.Repeat([]byte("\n"), 4096-len(text))...)
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write()
	p.connects("servers 1", "clients 1")
	time.Sleep(100 * time.Millisecond) // the store knows the padded files
	p.rotateServer(testkit.NewAuthority(t, "servers 2"))
	p.rotateClient(testkit.NewAuthority(t, "clients 2"))
	write()
	p.connects("servers 2", "clients 2")
}

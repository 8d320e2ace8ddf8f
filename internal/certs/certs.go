// SPDX-License-Identifier: Apache-2.0

// Package certs is the one place for the TLS certificates of a process. It loads them from files,
// gives them to servers and clients, loads them again when the files change, and reports when they
// expire.
//
// New connections use the newest certificates; open connections keep theirs. Files that cannot be
// used leave the previous certificates in force; the problem is logged once and is part of State.
//
// # Concurrency
//
// A Store may be used from any goroutine. It has one goroutine between Start and Stop.
package certs

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DefaultInterval is the interval at which files are checked for changes.
	DefaultInterval = time.Second
	// ExpiryWarning is the time before the end of a certificate from which its expiry is logged.
	ExpiryWarning = 14 * 24 * time.Hour
)

// Files are the PEM files of one end of a connection.
type Files struct {
	Cert string // certificate to present, followed by the intermediate certificates; "" presents none
	Key  string // private key of Cert
	CA   string // certificates to trust for the other end; "": a client trusts the system's, a server requires none
}

// Use says what certificate files are used for.
type Use struct {
	Name   string // "server of output gnmi", "P4Runtime client of device leaf1"
	Server bool   // whether the files belong to a server
	Files  Files
}

// Options configure a Store. The zero value is usable.
type Options struct {
	// Logger receives changes, problems and expiry; nil disables logging.
	Logger *slog.Logger
	// OnChange, if set, is called after files were loaded again and when a Status has changed. It
	// must not block.
	OnChange func()
	// Interval is the interval at which files are checked; 0 is DefaultInterval. A change takes
	// effect when the files have been the same for one interval.
	Interval time.Duration
	// Now is the clock for expiry; nil is time.Now.
	Now func() time.Time
}

// Store owns the certificates of a process. Create it with New.
type Store struct {
	opts Options
	stop chan struct{}
	work sync.WaitGroup

	mu     sync.Mutex
	uses   map[string][]Use // uses by declarer
	sets   map[source]*set
	logged map[string]expiry // last logged expiry of each file
	warned map[string]bool   // logged texts of the material.skipped in force
}

// source identifies a set: files are loaded once for all of their uses.
type source struct {
	Files
	server bool
}

// set is a source with its certificates in force.
type set struct {
	source
	current atomic.Pointer[material]

	// Guarded by Store.mu.
	users   string // what the certificates are used for, such as names of devices; "" if they are not in use
	seen    stamp  // stamp of the files at the latest check
	tried   stamp  // stamp of the files that were loaded last, with or without success
	problem string // why the newest files are not used
}

// expiry is the part of a State that is logged when it changes.
type expiry struct {
	status   Status
	notAfter time.Time
}

// New returns a store without certificates.
func New(o Options) *Store {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	if o.Interval <= 0 {
		o.Interval = DefaultInterval
	}
	return &Store{opts: o, stop: make(chan struct{}), uses: map[string][]Use{}, sets: map[source]*set{},
		logged: map[string]expiry{}, warned: map[string]bool{}}
}

// Start follows changes of the files until Stop.
func (s *Store) Start() {
	s.work.Go(func() {
		tick := time.NewTicker(s.opts.Interval)
		defer tick.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-tick.C:
				s.check()
			}
		}
	})
}

// Stop ends the goroutine. It is called once. The certificates remain usable.
func (s *Store) Stop() {
	close(s.stop)
	s.work.Wait()
}

// Server loads the files of a server and returns its configuration. With a CA file, clients need a
// certificate. The files are followed while a Use of them is declared.
func (s *Store) Server(f Files) (*tls.Config, error) {
	x, err := s.add(source{f, true})
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return x.current.Load().server, nil },
	}, nil
}

// Client loads the files of a client and returns its configuration. host is the name or IP address
// of the server, for which the server's certificate must be valid unless the configuration gets
// another ServerName. The files are followed while a Use of them is declared.
func (s *Store) Client(f Files, host string) (*tls.Config, error) {
	x, err := s.add(source{f, false})
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.Cert != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return x.current.Load().pair, nil
		}
	}
	if f.CA != "" {
		// RootCAs cannot change between connections. VerifyConnection does the same verification
		// with the current roots.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(state tls.ConnectionState) error { return x.verify(state, host) }
	}
	return c, nil
}

// verify verifies the certificates that a server presents, as package tls does.
func (x *set) verify(state tls.ConnectionState, host string) error {
	o := x509.VerifyOptions{
		Roots: x.current.Load().pool, Intermediates: x509.NewCertPool(),
		DNSName: cmp.Or(state.ServerName, host), // package tls has no ServerName for an IP address
	}
	for _, c := range state.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	if _, err := state.PeerCertificates[0].Verify(o); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
	}
	return nil
}

// add returns the set of a source, which holds the current files' certificates.
func (s *Store) add(src source) (*set, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.sets[src]
	if x != nil && x.users != "" {
		return x, nil // the source is followed already
	}
	at := stampOf(src.Files)
	m, err := load(src)
	if err != nil {
		return nil, err
	}
	if x == nil {
		x = &set{source: src}
		s.sets[src] = x
	}
	x.seen, x.tried = at, at
	s.use(x, m)
	return x, nil
}

// use puts the certificates m in force for a set, and logs which certificates of the files cannot
// be read.
func (s *Store) use(x *set, m *material) {
	x.current.Store(m)
	for _, text := range m.skipped {
		if !s.warned[text] { // a source with the same file may have logged it
			s.opts.Logger.Warn("certificates that cannot be read are not used", "file", text)
		}
	}
	clear(s.warned)
	for _, x := range s.sets {
		if m := x.current.Load(); m != nil {
			for _, text := range m.skipped {
				s.warned[text] = true
			}
		}
	}
}

// Declare replaces the uses of a declarer by the uses that are in force now. Files in use are
// followed and part of States.
func (s *Store) Declare(declarer string, uses ...Use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses[declarer] = uses
	names := map[source][]string{}
	for _, uses := range s.uses {
		for _, use := range uses {
			src := source{use.Files, use.Server}
			names[src] = append(names[src], use.Name)
		}
	}
	for src, x := range s.sets {
		before := x.users
		slices.Sort(names[src])
		if x.users = strings.Join(names[src], ", "); x.users == "" && before != "" {
			delete(s.sets, src)
		}
	}
	s.logExpiry()
}

// Reload loads all files at once, whether they changed or not.
func (s *Store) Reload() {
	s.mu.Lock()
	for _, x := range s.sets {
		if x.users != "" {
			x.problem = "" // so that the problem is logged again: the user expects an answer
			s.reload(x, stampOf(x.Files))
		}
	}
	s.logExpiry()
	s.mu.Unlock()
	s.opts.OnChange()
}

// check loads the sets whose files have changed and were then the same for one interval, so that a
// certificate and its key can be replaced one after the other.
func (s *Store) check() {
	changed := false
	s.mu.Lock()
	for _, x := range s.sets {
		if x.users == "" {
			continue
		}
		at := stampOf(x.Files)
		if at == x.seen && at != x.tried {
			s.reload(x, at)
			changed = true
		}
		x.seen = at
	}
	changed = s.logExpiry() || changed
	s.mu.Unlock()
	if changed {
		s.opts.OnChange()
	}
}

// reload replaces the certificates of a set, or logs why the old ones stay in force. s.mu is held.
func (s *Store) reload(x *set, at stamp) {
	x.seen, x.tried = at, at
	m, err := load(x.source)
	if err == nil {
		if err = m.worseThan(x.current.Load(), s.opts.Now()); err != nil {
			x.tried = stamp{} // the next check tries again: the certificate may become valid
		}
	}
	switch {
	case err == nil:
		if m.sum != x.current.Load().sum {
			s.use(x, m)
			s.opts.Logger.Info("new certificates are used for new connections", "use", x.users,
				"files", x.Files.String())
		} else if x.problem != "" {
			s.opts.Logger.Info("the files contain the certificates in force again", "use", x.users,
				"files", x.Files.String())
		}
		x.problem = ""
	case err.Error() != x.problem:
		x.problem = err.Error()
		s.opts.Logger.Error("new certificate files cannot be used; the previous certificates stay in force",
			"use", x.users, "error", err)
	}
}

// Status is whether a certificate is valid now.
type Status string

// The states of a certificate, as module netsketch-collector names them.
const (
	Valid       Status = "VALID"
	Expiring    Status = "EXPIRING" // expires in less than ExpiryWarning
	Expired     Status = "EXPIRED"
	NotYetValid Status = "NOT_YET_VALID"
)

// State is the state of one file of certificates in force. If the file has several certificates,
// State describes the certificate that expires first.
type State struct {
	File     string
	Use      string // users of the file, sorted and separated by commas
	Subject  string
	NotAfter time.Time
	DaysLeft int // days until NotAfter, rounded down; negative after it
	Status   Status
	Problem  string // why the newest files are not used; "" without a problem

	own bool // whether this process presents the certificate; false for an authority's certificate
}

// States returns the state of every file in use, sorted by name.
func (s *Store) States() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states()
}

// Warnings lists the certificates that cannot be read, and the certificates presented by this
// process that are not valid now, of all sets, including those without a declared use.
func (s *Store) Warnings() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.sets {
		m := x.current.Load()
		for _, text := range m.skipped {
			out = append(out, "certificates that cannot be read are not used: "+text)
		}
		for _, f := range m.files {
			if f.leaf != nil && statusOf(f.leaf, s.opts.Now()).invalid() {
				out = append(out, f.period())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *Store) states() []State {
	byFile := map[string]*State{}
	now := s.opts.Now()
	for _, x := range s.sets {
		if x.users == "" {
			continue
		}
		for _, f := range x.current.Load().files {
			st := byFile[f.name]
			if st == nil {
				st = &State{File: f.name}
				byFile[f.name] = st
			}
			st.own = st.own || f.leaf != nil
			st.Use = joinSorted(st.Use, x.users)
			if strings.Contains(x.problem, f.name) { // the error names the file
				st.Problem = x.problem
			}
			if c := f.first; st.NotAfter.IsZero() || c.NotAfter.Before(st.NotAfter) {
				st.Subject, st.NotAfter, st.Status = c.Subject.String(), c.NotAfter, statusOf(c, now)
				st.DaysLeft = int(math.Floor(c.NotAfter.Sub(now).Hours() / 24))
			}
		}
	}
	out := make([]State, 0, len(byFile))
	for _, st := range byFile {
		out = append(out, *st)
	}
	slices.SortFunc(out, func(a, b State) int { return strings.Compare(a.File, b.File) })
	return out
}

// joinSorted merges two sorted texts of States.Use.
func joinSorted(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	names := append(strings.Split(a, ", "), strings.Split(b, ", ")...)
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

func (s Status) invalid() bool { return s == Expired || s == NotYetValid }

func statusOf(c *x509.Certificate, now time.Time) Status {
	switch {
	case now.After(c.NotAfter):
		return Expired
	case now.Before(c.NotBefore):
		return NotYetValid
	case now.Add(ExpiryWarning).After(c.NotAfter):
		return Expiring
	}
	return Valid
}

// logExpiry logs the certificates that expire soon or are not valid, once per change, and reports
// whether there was a change. s.mu is held.
func (s *Store) logExpiry() (changed bool) {
	inUse := map[string]expiry{}
	for _, st := range s.states() {
		e := expiry{st.Status, st.NotAfter}
		inUse[st.File] = e
		if s.logged[st.File] == e {
			continue
		}
		changed = true
		log := s.opts.Logger.With("use", st.Use, "file", st.File, "subject", st.Subject, "not-after",
			st.NotAfter.UTC().Format(time.RFC3339), "days-left", st.DaysLeft)
		switch {
		case st.Status == Expiring:
			log.Warn("certificate expires soon")
		case st.Status == NotYetValid:
			log.Warn("certificate is not valid yet")
		case st.Status == Expired && st.own:
			log.Error("certificate has expired")
		case st.Status == Expired:
			log.Warn("certificate of an authority has expired")
		}
	}
	s.logged = inUse
	return changed
}

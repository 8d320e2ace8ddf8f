// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
)

// Load returns the TLS configuration of an output's server and declares its certificate; nil for
// plaintext.
func (t TLS) Load(store *certs.Store, output string) (*tls.Config, error) {
	if t.Plaintext {
		return nil, nil
	}
	files := certs.Files{Cert: t.CertFile, Key: t.KeyFile, CA: t.ClientCAFile}
	c, err := store.Server(files)
	if err != nil {
		return nil, err
	}
	store.Declare("output "+output, certs.Use{Name: "server of output " + output, Server: true, Files: files})
	return c, nil
}

// Serving is the state of an output that serves clients of a gNMI server. Before Listen it is down.
// It may be used concurrently.
type Serving struct {
	Name string // what the output serves, for errors

	mu     sync.Mutex
	lis    *Listener
	gnmi   *server.Server
	status outputs.Status
	err    string
}

// Listen listens on an address for clients of the gNMI server. It must succeed once before the
// output runs.
func (s *Serving) Listen(address string, limits Limits, gnmi *server.Server) (*Listener, error) {
	lis, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s address %s is in use by another program; stop it, or set another address: %w",
			s.Name, address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s address %s: %w", s.Name, address, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lis, s.gnmi, s.status = NewListener(lis, limits, gnmi.Refused), gnmi, outputs.Up
	return s.lis, nil
}

// Address returns the address on which Listen listens, with the actual port if the setting is port
// 0; empty before Listen.
func (s *Serving) Address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lis == nil {
		return ""
	}
	return s.lis.Addr().String()
}

// End records that the output has stopped, with the error that stopped it or nil, and returns the
// error with the address.
func (s *Serving) End(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = outputs.Stopped
	if err == nil {
		return nil
	}
	s.err = err.Error()
	return fmt.Errorf("%s on %s: %w", s.Name, s.lis.Addr(), err)
}

// Stats returns the counts of the gNMI server; zero before Listen.
func (s *Serving) Stats() server.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gnmi == nil {
		return server.Stats{}
	}
	return s.gnmi.Stats()
}

// State returns the output's state.
func (s *Serving) State() outputs.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gnmi == nil {
		return outputs.State{Status: outputs.Down, Serves: true}
	}
	stats := s.gnmi.Stats()
	return outputs.State{Status: s.status, LastError: s.err, Serves: true, Sent: stats.Updates,
		Clients: Clients(s.lis.Count(), stats)}
}

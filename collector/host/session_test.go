// SPDX-License-Identifier: Apache-2.0

package host

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
	hostagent "github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// TestReconnect: an agent that reconnects reports the epochs that it missed, as late reports.
func TestReconnect(t *testing.T) {
	r := newRig(t, nil, "h1")
	h := r.start("h1", nil)
	r.open(h)
	r.step()
	for s := range r.sessions() {
		s.end(errors.New("cut by the test"))
	}
	testkit.Until(t, "another session", func() bool { return r.status("h1").Sessions == 2 && r.status("h1").Connected })
	testkit.Until(t, "settings", func() bool { return r.status("h1").SettingsApplied == 2 })
	ep := r.step()
	r.expect(ep, "h1", fmt.Sprintf("h1 one %d", ep.Number)) // the role kept measuring
}

func (r *rig) sessions() map[*session]struct{} {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	out := map[*session]struct{}{}
	for s := range r.c.sessions {
		out[s] = struct{}{}
	}
	return out
}

// TestRestartedAgent: an agent that restarts without its data is missing from the epoch in which
// it restarts.
func TestRestartedAgent(t *testing.T) {
	r := newRig(t, nil, "h1")
	h := r.start("h1", nil)
	r.open(h)
	r.step()
	r.expect(r.step(), "h1", "h1 one")
	h.cancel()
	testkit.Until(t, "the end of the session", func() bool { return !r.status("h1").Connected })
	r.start("h1", nil)
	testkit.Until(t, "settings", func() bool { return r.status("h1").SettingsApplied == 2 })
	r.expect(r.step(), "h1", "joined during the epoch")
	r.expect(r.step(), "h1", "h1 one")
}

// TestKilledAgent: a process that is killed is missing from that epoch and from the epoch in which
// it restarts; later results are exact.
func TestKilledAgent(t *testing.T) {
	r := newRig(t, nil, "h1", "h2")
	other := r.start("h2", nil)
	run := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), agentVariable+"=h1@"+r.c.Address())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // the process may have been killed before
			_ = cmd.Wait()
		})
		testkit.Until(t, "a session of the process", func() bool { return r.status("h1").Connected })
		return cmd
	}
	cmd := run()
	r.open(other)
	r.measuring(&testHost{name: "h1"})
	r.step()
	r.expect(r.step(), "h1", "h1 one")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the end of the session", func() bool { return !r.status("h1").Connected })
	ep := r.step()
	r.expect(ep, "h1", "no session with the agent")
	r.expect(ep, "h2", "h2 one")
	run()
	testkit.Until(t, "settings", func() bool { return r.status("h1").SettingsApplied == 2 })
	r.expect(r.step(), "h1", "joined during the epoch")
	if ep := r.step(); ep.Status != epoch.Complete {
		t.Errorf("two epochs later the epoch is %v, want complete", ep.Status)
	}
}

func TestTwoAgentsOfOneHost(t *testing.T) {
	r := newRig(t, nil, "h1")
	first := r.start("h1", nil)
	second := r.run(r.newHost("h1"), nil)
	testkit.Until(t, "a refusal", func() bool {
		return strings.Contains(second.agent.Status().LastError, "has a session with another agent")
	})
	if s := r.status("h1"); !s.Connected || s.SessionsRefused == 0 || !strings.Contains(s.LastError, "second agent") {
		t.Errorf("status %+v", s)
	}
	first.cancel()
	testkit.Until(t, "a session of the second agent", func() bool { return second.agent.Status().Connected })
}

// TestConnectionsShareALine: many hosts connect, are measured and disconnect at the same time. The
// log has one line for each of these three changes.
func TestConnectionsShareALine(t *testing.T) {
	names := make([]string, 8)
	for i := range names {
		names[i] = fmt.Sprintf("h%d", i)
	}
	r := newRig(t, nil, names...)
	r.c.connections.after = time.Hour // flushed by the test
	hosts := make([]*testHost, len(names))
	for i, name := range names {
		hosts[i] = r.start(name, nil)
	}
	r.c.connections.flush()
	r.open(hosts...)
	r.step()
	r.step()
	for _, h := range hosts[2:] {
		h.cancel()
		testkit.Until(t, "the end of "+h.name, func() bool { return !r.status(h.name).Connected })
	}
	r.c.connections.flush()
	r.step()
	log := r.log.String()
	for _, line := range []string{
		`level=INFO msg="host agents connected" connected="8 of 8" hosts="h0,h1,h2,h3,h4 and 3 more"`,
		`level=INFO msg="hosts are measured" count="8 of 8" hosts="h0,h1,h2,h3,h4 and 3 more"`,
		`level=WARN msg="sessions of host agents ended" connected="2 of 8" hosts="h2,h3,h4,h5,h6 and 1 more" ` +
			`reason="the agent closed the connection"`,
		`level=WARN msg="hosts are missing from the epoch" count="6 of 8" hosts="h2,h3,h4,h5,h6 and 1 more" reason=`,
	} {
		if n := strings.Count(log, line); n != 1 {
			t.Errorf("%d lines %s in\n%s", n, line, log)
		}
	}
}

func TestRemovedHost(t *testing.T) {
	r := newRig(t, nil, "h1", "h2")
	h1, h2 := r.start("h1", nil), r.start("h2", nil)
	r.open(h1, h2)
	r.c.SetHosts([]string{"h2"})
	testkit.Until(t, "the refusal", func() bool {
		return strings.Contains(h1.agent.Status().LastError, "no longer configured") ||
			strings.Contains(h1.agent.Status().LastError, "not configured with an agent")
	})
	if ep := r.step(); len(ep.Sources) != 1 || ep.Sources[0].Name != "h2" {
		t.Errorf("sources %+v, want h2", ep.Sources)
	}
}

// TestRedirect: an agent that connects to any collector of a cluster reaches the collector that
// serves its host, even if the host moves during the session or the collector is gone.
func TestRedirect(t *testing.T) {
	a, b := newRig(t, nil, "h1"), newRig(t, func(c *Config) { c.Shared = true }, "h1")
	h := b.run(b.newHost("h1"), func(c *hostagent.Config) { c.Others = []string{a.c.Address()} })
	testkit.Until(t, "the owner is not known yet", func() bool {
		return strings.Contains(h.agent.Status().LastError, "another collector")
	})
	b.c.Assign(nil, map[string]string{"h1": a.c.Address()})
	testkit.Until(t, "a session with a", func() bool { return a.status("h1").Connected })
	b.c.Assign([]string{"h1"}, nil)
	a.c.Assign(nil, map[string]string{"h1": b.c.Address()})
	testkit.Until(t, "a session with b", func() bool { return b.status("h1").Connected })
	if hosts := a.c.Hosts(); len(hosts) != 0 {
		t.Errorf("hosts of a: %+v", hosts)
	}
	if r := a.c.Refusals(); r.Sessions != 0 {
		t.Errorf("a redirected session counts as refused: %+v", r)
	}
	a.c.Assign([]string{"h1"}, nil)
	b.c.Stop()
	testkit.Until(t, "a session with a when b is gone", func() bool { return a.status("h1").Connected })
}

func TestCertificates(t *testing.T) {
	directory := t.TempDir()
	authority, other := testkit.NewAuthority(t, "root"), testkit.NewAuthority(t, "other")
	year := time.Now().AddDate(1, 0, 0)
	ca := authority.Write(t, directory, "ca.pem")
	server, serverKey := authority.Issue(t, directory, "collector", year)
	store := certs.New(certs.Options{})
	serverTLS, err := store.Server(certs.Files{Cert: server, Key: serverKey, CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *Config) { c.TLS = serverTLS }, "h1", "h2")
	tests := []struct {
		name, commonName string
		by               *testkit.Authority
		dns              []string
		host             string // host that the agent states
		connected        string // host of the session; empty if the agent is refused
		want             string // expected error
	}{
		{"common name", "h1", authority, nil, "", "h1", ""},
		{"DNS names", "ignored", authority, []string{"h2.example.com", "h2"}, "h2", "h2", ""},
		{"DNS names replace the common name", "h1", authority, []string{"h9"}, "", "", "which is not a host with an agent"},
		{"another host", "h1", authority, nil, "h2", "", "has the certificate of host"},
		{"two hosts", "x", authority, []string{"h1", "h2"}, "", "", "several hosts"},
		{"another authority", "h1", other, nil, "", "", "certificate"},
	}
	for i, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			cert, key := tc.by.Issue(t, directory, tc.commonName, year, tc.dns...)
			files := certs.Files{Cert: cert, Key: key, CA: ca}
			clientTLS, err := certs.New(certs.Options{}).Client(files, "127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			h := r.run(r.newHost(fmt.Sprintf("agent%d", i)), func(c *hostagent.Config) {
				c.TLS, c.Host = func(string) (*tls.Config, error) { return clientTLS, nil }, tc.host
			})
			defer h.cancel()
			if tc.connected != "" {
				testkit.Until(t, "a session", func() bool { return r.status(tc.connected).Connected })
				return
			}
			testkit.Until(t, "a refusal", func() bool { return strings.Contains(h.agent.Status().LastError, tc.want) })
			if s := h.agent.Status(); s.Sessions != 0 {
				t.Errorf("the session was accepted: %+v", s)
			}
		})
	}
	t.Run("plaintext", func(t *testing.T) {
		h := r.run(r.newHost("h1"), nil)
		testkit.Until(t, "an error", func() bool { return h.agent.Status().LastError != "" })
	})
}

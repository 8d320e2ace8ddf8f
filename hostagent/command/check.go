// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/input"
	"github.com/netsketch/netsketch/internal/certs"
)

// sessionTimeout bounds the wait of a check for a session.
const sessionTimeout = 10 * time.Second

// errChecks ends a check that found errors, which it has printed.
var errChecks = errors.New("the agent would fail")

// findings prints the results of checks.
type findings struct {
	w      io.Writer
	failed bool
}

func (f *findings) report(what string, err error) {
	if err != nil {
		f.failed = true
		fmt.Fprintf(f.w, "fail  %s: %s\n", what, strings.ReplaceAll(err.Error(), "\n", "\n      "))
		return
	}
	fmt.Fprintf(f.w, "ok    %s\n", what)
}

func (f *findings) warn(what, text string) { fmt.Fprintf(f.w, "warn  %s: %s\n", what, text) }

// check prints every problem that would make an agent fail.
func check(ctx context.Context, w io.Writer, path, version string, roles []Role, offline bool) error {
	f := &findings{w: w}
	c, err := load(path, roles)
	f.report("configuration "+path, err)
	if err != nil {
		return errChecks
	}
	store := certs.New(certs.Options{})
	cfg, err := c.agentConfig(store, version)
	if err == nil && cfg.TLS != nil {
		err = f.certificates(store)
	}
	f.report("certificates", err)
	if text := c.dropPins(); text != "" {
		f.warn("pins", text)
	}
	f.packets(c, roles)
	f.local(c, roles)
	if err == nil && !offline {
		what := "session with the collector at " + cfg.Address
		err := session(ctx, cfg, c.configured(roles))
		if agent.IsRunning(err) {
			f.warn(what, err.Error())
			err = nil
		}
		f.report(what, err)
	}
	if f.failed {
		return errChecks
	}
	return nil
}

// certificates returns the error of a certificate that cannot be used now.
func (f *findings) certificates(store *certs.Store) error {
	var errs []error
	for _, s := range store.States() {
		switch s.Status {
		case certs.Expired, certs.NotYetValid:
			errs = append(errs, fmt.Errorf("%s: %s (valid until %s)", s.File, s.Status, s.NotAfter.Format(time.RFC3339)))
		case certs.Expiring:
			f.warn("certificates", fmt.Sprintf("%s expires in %d days", s.File, s.DaysLeft))
		case certs.Valid:
		}
	}
	return errors.Join(errs...)
}

// packets checks the source of packets for each role.
func (f *findings) packets(c *Config, roles []Role) {
	p := c.Packets
	for _, r := range c.configured(roles) {
		what := fmt.Sprintf("role %s with packets.source: %s", r.Name, p.Source)
		switch {
		case !r.runs(p.Source):
			f.report(what, errors.New("this program has no such data path for the role"))
		case p.Source == SourceKernel && r.Kernel.Check != nil:
			warnings, err := r.Kernel.Check(c.kernel(r.Name, nil))
			for _, text := range warnings {
				f.warn(what, text)
			}
			f.report(what, err)
		default:
			f.report(what, nil)
		}
	}
	switch p.Source {
	case SourceBridge:
		f.report(fmt.Sprintf("forwarding between %s and %s", p.Inside, p.Outside),
			input.Bridge{Inside: p.Inside, Outside: p.Outside}.Check())
	case SourceReports:
		f.report("telemetry reports at "+p.Receive, p.receiver(nil).Check())
	case SourceCapture:
		_, err := os.Stat(p.File)
		f.report("capture file", err)
	case SourceKernel:
	}
}

// local checks the socket for queries of programs on this host.
func (f *findings) local(c *Config, roles []Role) {
	if c.Local == "" {
		return
	}
	_, err := os.Stat(filepath.Dir(strings.TrimPrefix(c.Local, "unix://")))
	if !slices.ContainsFunc(c.configured(roles), func(r Role) bool { return r.Local != nil }) {
		err = errors.Join(err, c.errNoLocal())
	}
	f.report("queries at "+c.Local, err)
}

// session returns why the collector would not accept this agent.
func session(ctx context.Context, cfg agent.Config, roles []Role) error {
	ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = r.Name
	}
	err := agent.Check(ctx, cfg, names)
	if ctx.Err() != nil {
		return fmt.Errorf("no answer within %v", sessionTimeout)
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/hostagent/hostv1"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// errSilent is the reason why a host with a session is missing from an epoch.
var errSilent = fmt.Errorf("the agent: %w", epoch.ErrLate)

// errAgain is the reason why a part of a report is not used: the part has already arrived.
var errAgain = errors.New("the part has arrived before")

// Status is the state of a host with an agent.
type Status struct {
	Name string
	// Connected is set if the agent has a session. Address, Version, BootID, Roles, UDP and Since
	// describe the current session, or the latest one.
	Connected                bool
	Address, Version, BootID string
	Roles                    []string
	UDP                      bool
	Since                    time.Time
	// Sessions counts sessions. SessionsRefused counts refused sessions, such as the sessions of a
	// second agent with the same name.
	Sessions, SessionsRefused uint64
	// Epochs counts epochs that the host's clock began. EpochsRefused counts epochs that were too far
	// ahead.
	Epochs, EpochsRefused uint64
	// Reports counts the reports of roles. ReportsLate counts reports that arrived after their epoch
	// was delivered, ReportsRefused reports that were too large or not requested, and ReportsLost
	// reports that did not arrive or were dropped before delivery.
	Reports, ReportsLate, ReportsRefused, ReportsLost uint64
	// ReportBytes counts the bytes of Reports.
	ReportBytes uint64
	// ReportTime is the time from the request to the last report, in the newest epoch.
	ReportTime time.Duration
	// SettingsApplied and SettingsRefused count outcomes of settings.
	SettingsApplied, SettingsRefused uint64
	// EpochsAhead is the number of epochs by which the host's clock was ahead of the collector's when
	// it was set aside; 0 if it is not set aside.
	EpochsAhead uint64
	// Leases counts the addresses to which roles may send packets with a header, and LeasesMissing
	// the addresses to which they may not. NoLease holds the reasons for some of the missing ones.
	Leases, LeasesMissing uint64
	NoLease               []string
	// LastError is the newest error, with the epoch or role in which it occurred.
	LastError string
}

// agent is a host with an agent, and a source of epochs. It exists longer than the agent's
// sessions.
type agent struct {
	c    *Component
	name string

	mu       sync.Mutex
	st       Status
	session  *session // nil without a session
	wanted   []*want  // awaited reports, in the order of their epochs
	instance string   // identifies the agent that sent parts
	parts    map[partOf]bool
	early    map[uint64][]sdk.HostReport // parts of reports of epochs that are not delivered yet
	ended    error                       // set when the host is no longer configured
}

// partOf is a part of a report that has arrived.
type partOf struct {
	epoch  uint64
	role   string
	number uint64
}

// want is an epoch whose reports are awaited.
type want struct {
	epoch     uint64
	roles     []string          // roles whose reports are missing
	plugins   map[string]string // by role, the plugin whose settings the report was requested with
	reports   []sdk.HostReport
	missing   map[string]error // reason for the missing report, by role
	begun     time.Time        // when the request was made
	complete  chan struct{}    // closed when no report is missing
	requested time.Time        // when the newest request was sent, on the clock of the epochs
	began     time.Time        // estimate of when the host began the next epoch; zero if unknown
	delivered bool             // the epoch was delivered: further reports are late
}

func newAgent(c *Component, name string) *agent {
	return &agent{c: c, name: name, parts: map[partOf]bool{}, early: map[uint64][]sdk.HostReport{},
		st: Status{Name: name, LastError: "no agent has connected"}}
}

// Name implements epoch.Source.
func (a *agent) Name() string { return a.name }

// Sealing implements epoch.Source.
func (a *agent) Sealing() epoch.Sealing { return epoch.SealedBySource }

// Begin implements epoch.Source.
func (a *agent) Begin(b epoch.Boundary) (epoch.Part, []string) {
	a.c.begin(b.Number + 1)
	a.mu.Lock()
	s := a.session
	a.mu.Unlock()
	if s != nil {
		s.changed() // sends the settings of the epoch that begins
	}
	return &part{a: a, number: b.Number}, nil
}

// part is one boundary at a host.
type part struct {
	a      *agent
	number uint64
}

// Seal implements epoch.Part; it is not called.
func (p *part) Seal(context.Context) error { return nil }

// Collect implements epoch.Part: it requests the reports when the network has drained, and waits
// for them. If it cannot wait until then, it requests the reports nevertheless, and they arrive
// late.
func (p *part) Collect(ctx context.Context, drained epoch.Drained) (epoch.Result, error) {
	a := p.a
	err := drained(ctx)
	a.settle(p.number)
	if err = cmp.Or(a.connected(), err); err != nil {
		a.want(p.number, true)
		return epoch.Result{}, err
	}
	w, s := a.want(p.number, false)
	if s != nil {
		select {
		case <-w.complete:
		case <-s.done:
		case <-ctx.Done():
		}
	}
	return a.deliver(w)
}

// connected returns why the host has no session; nil if it has a session.
func (a *agent) connected() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session == nil {
		return errors.New("no session with the agent: " + a.st.LastError)
	}
	return nil
}

// want begins to await the reports of an epoch. If late is set, no goroutine waits for the reports,
// and they are delivered as late reports. It drops the oldest awaited epochs beyond the bound of
// late reports.
func (a *agent) want(number uint64, late bool) (*want, *session) {
	w := &want{epoch: number, begun: time.Now(), complete: make(chan struct{}), delivered: late,
		missing: map[string]error{}, plugins: map[string]string{}}
	for _, s := range a.c.deps.Settings(a.name) {
		w.roles = append(w.roles, s.Role)
		w.plugins[s.Role] = s.Plugin
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(w.roles) == 0 {
		close(w.complete)
		return w, a.session
	}
	a.wanted = append(a.wanted, w)
	if n := len(a.wanted) - epoch.DefaultLateEpochs - 1; n > 0 {
		for _, old := range a.wanted[:n] {
			a.st.ReportsLost += uint64(len(old.roles))
		}
		a.wanted = slices.Delete(a.wanted, 0, n)
	}
	if a.session != nil {
		a.session.request(w.epoch, w.roles)
	}
	return w, a.session
}

// deliver returns the reports of an epoch that have arrived so far. Later reports of the epoch are
// late.
func (a *agent) deliver(w *want) (epoch.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.delivered = true
	result := epoch.Result{Began: w.began, Reading: &epoch.Reading{Hosts: w.reports, MissingRoles: w.missing}}
	silent := errSilent
	if a.session == nil {
		silent = errors.New("the session with the agent ended: " + a.st.LastError)
	}
	for _, role := range w.roles {
		w.missing[role] = silent
	}
	switch {
	case len(w.reports) > 0:
		result.Reading.Hosts = append(a.early[w.epoch], w.reports...)
		delete(a.early, w.epoch)
		slices.SortStableFunc(result.Reading.Hosts, func(x, y sdk.HostReport) int { return strings.Compare(x.Role, y.Role) })
	case len(w.missing) > 0: // parts are delivered with the next epoch
		if len(w.roles) > 0 && a.session != nil {
			a.st.LastError = fmt.Sprintf("epoch %d: no report before the deadline", w.epoch)
		}
		result.Reading = nil
		return result, w.missing[slices.Min(slices.Collect(maps.Keys(w.missing)))]
	}
	w.reports, w.missing = nil, nil
	return result, nil
}

// enter begins a session, or returns why the session is refused.
func (a *agent) enter(s *session, hello *hostv1.Hello) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != nil {
		return a.ended
	}
	if old := a.session; old != nil {
		if old.instance != hello.GetInstance() {
			err := fmt.Errorf("host %s has a session with another agent, from %s since %s: stop one of the two, "+
				"or give it the certificate of its own host", a.name, a.st.Address, a.st.Since.Format(time.RFC3339))
			a.st.SessionsRefused++
			a.st.LastError = fmt.Sprintf("a second agent, from %s, was refused", s.address)
			return err
		}
		old.end(errors.New("the same agent opened another session"))
	}
	if a.instance != hello.GetInstance() {
		a.instance = hello.GetInstance()
		clear(a.parts) // the agent restarts the numbers of parts
	}
	a.session = s
	st := &a.st
	st.Connected, st.Address, st.Version, st.BootID = true, s.address, hello.GetVersion(), hello.GetBootId()
	st.Roles, st.UDP, st.Since, st.LastError = slices.Sorted(slices.Values(hello.GetRoles())), false, time.Now(), ""
	st.Sessions++
	for _, w := range a.wanted {
		s.request(w.epoch, w.roles)
	}
	return nil
}

// other returns the address of another agent that has a session.
func (a *agent) other(instance string) (address string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.st.Address, a.session != nil && a.session.instance != instance
}

// leave ends a session.
func (a *agent) leave(s *session, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session != s {
		return
	}
	a.session, a.st.Connected = nil, false
	a.st.LastError = err.Error()
}

// end ends the session of the host's agent and admits no other. reason is the error for goroutines
// that wait for reports.
func (a *agent) end(reason error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = reason
	if a.session != nil {
		a.session.end(reason)
	}
}

func clockError(by uint64) string {
	return fmt.Sprintf("the host's clock is %d epochs ahead of the collector's; synchronize the clocks", by)
}

// aheadOf records by how many epochs the host's clock is ahead.
func (a *agent) aheadOf(by uint64) {
	a.mu.Lock()
	first := a.st.EpochsAhead == 0
	a.st.EpochsAhead, a.st.LastError = by, clockError(by)
	a.mu.Unlock()
	if first {
		a.c.log.Warn("the clock of a host is ahead of the collector's; its epochs are not relayed", "host", a.name,
			"epochs", by)
	}
	a.c.deps.OnChange()
}

// refusedEpoch counts an epoch that is not relayed.
func (a *agent) refusedEpoch() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.st.EpochsRefused++
}

// levelled records that the host's clock agrees with the collector's again.
func (a *agent) levelled() {
	a.mu.Lock()
	was := a.st.EpochsAhead
	if a.st.EpochsAhead = 0; a.st.LastError == clockError(was) {
		a.st.LastError = ""
	}
	a.mu.Unlock()
	if was > 0 {
		a.c.log.Info("the clock of a host agrees with the collector's again", "host", a.name)
		a.c.deps.OnChange()
	}
}

// maxReasons bounds the reasons of missing leases that are kept.
const maxReasons = 100

// leases records the state of a role's leases.
func (a *agent) leases(m *hostv1.Leases) {
	var reasons []string
	for _, w := range m.GetWithout()[:min(len(m.GetWithout()), maxReasons)] {
		address, ok := netip.AddrFromSlice(w.GetAddress())
		if !ok || len(w.GetReason()) > maxNameBytes {
			continue
		}
		text := address.String()
		if name := a.c.deps.HostOf; name != nil && name(address) != "" {
			text = fmt.Sprintf("%s (%s)", name(address), text)
		}
		reasons = append(reasons, fmt.Sprintf("%s: %s", text, w.GetReason()))
	}
	a.mu.Lock()
	before := len(a.st.NoLease)
	a.st.Leases, a.st.LeasesMissing, a.st.NoLease = uint64(m.GetHeld()), uint64(m.GetMissing()), reasons
	a.mu.Unlock()
	if before == 0 && len(reasons) > 0 {
		a.c.log.Warn("no lease, or a short one: the host sends packets to these addresses without a header, so results "+
			"on them are not exact", "host", a.name, "addresses", len(reasons), "first", reasons[0])
	}
}

// awaited returns why a report of a role in an epoch is not awaited; nil if it is awaited.
func (a *agent) awaited(m *hostv1.ReportChunk) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.find(m.GetEpoch(), m.GetRole())
	return err
}

// expected returns why a part of a report is not used; nil if it is used.
func (a *agent) expected(m *hostv1.ReportChunk) error {
	set := slices.ContainsFunc(a.c.deps.Settings(a.name), func(s intent.HostSetting) bool { return s.Role == m.GetRole() })
	newest, number := a.c.newest.Load(), m.GetEpoch()
	if !set || number > newest+maxAhead || number+epoch.DefaultLateEpochs < newest {
		return fmt.Errorf("no part of %s is awaited: the role has no settings, or the epoch is too far from %d", name(m),
			newest)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.parts[partOf{number, m.GetRole(), m.GetPart()}] {
		return errAgain
	}
	return nil
}

// part keeps a part of a report, which is delivered with the report or in a later epoch.
func (a *agent) part(m *hostv1.ReportChunk, data []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parts[partOf{m.GetEpoch(), m.GetRole(), m.GetPart()}] = true
	a.st.ReportBytes += uint64(len(data))
	a.early[m.GetEpoch()] = append(a.early[m.GetEpoch()],
		sdk.HostReport{Host: a.name, Role: m.GetRole(), Data: data})
}

// settle turns parts of epochs that were delivered before number into late reports, and stops
// recording which parts of older epochs have arrived.
func (a *agent) settle(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range slices.Sorted(maps.Keys(a.early)) {
		if e < number {
			for _, r := range a.early[e] {
				a.late(e, r)
			}
			delete(a.early, e)
		}
	}
	maps.DeleteFunc(a.parts, func(p partOf, _ bool) bool { return p.epoch+epoch.DefaultLateEpochs+1 < number })
}

// find returns the awaited epoch that lacks a role's report. The caller holds a.mu.
func (a *agent) find(number uint64, role string) (*want, error) {
	for _, w := range a.wanted {
		if w.epoch == number && slices.Contains(w.roles, role) {
			return w, nil
		}
	}
	return nil, fmt.Errorf("no report of role %q in epoch %d is awaited: it was reported before, is more than %d epochs "+
		"old, or was not requested", role, number, epoch.DefaultLateEpochs)
}

// report records a role's report of an epoch, or, if missing is not nil, why there is none. A
// report that the host measured for another plugin than the one that has the role now counts as
// missing, because that plugin could not read it. An error says that nobody awaits this report.
func (a *agent) report(number uint64, role string, data []byte, missing error) error {
	plugin := ""
	for _, s := range a.c.deps.Settings(a.name) {
		if s.Role == role {
			plugin = s.Plugin
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w, err := a.find(number, role)
	if err != nil {
		return err
	}
	if was := w.plugins[role]; missing == nil && plugin != "" && plugin != was {
		missing = fmt.Errorf("%w: the host measured for plugin %s, and the role now has settings of plugin %s",
			epoch.ErrJoining, was, plugin)
	}
	w.roles = slices.DeleteFunc(slices.Clone(w.roles), func(r string) bool { return r == role })
	if missing != nil {
		a.st.ReportsLost++
		if !errors.Is(missing, epoch.ErrJoining) {
			a.st.LastError = fmt.Sprintf("epoch %d: %v", number, missing)
		}
	} else {
		a.st.Reports++
		a.st.ReportBytes += uint64(len(data))
	}
	r := sdk.HostReport{Host: a.name, Role: role, Data: data}
	switch {
	case !w.delivered && missing == nil:
		w.reports = append(w.reports, r)
		a.st.ReportTime = time.Since(w.begun)
	case !w.delivered:
		w.missing[role] = missing
		a.st.ReportTime = time.Since(w.begun)
	case missing == nil:
		a.st.ReportsLate++
		a.late(number, r)
	}
	if len(w.roles) == 0 {
		close(w.complete)
		a.wanted = slices.DeleteFunc(a.wanted, func(x *want) bool { return x == w })
	}
	return nil
}

// late passes a report on an epoch that was delivered without it to the engine. The caller holds
// a.mu.
func (a *agent) late(number uint64, r sdk.HostReport) {
	if !a.c.deps.Epochs.Late(sdk.LateReport{Epoch: number, HostReport: r}) {
		a.st.ReportsLost++
	}
}

// asked records that the request for an epoch's reports is sent.
func (a *agent) asked(number uint64) {
	now := a.c.deps.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.wanted {
		if w.epoch == number {
			w.requested = now
		}
	}
}

// answered estimates when the host began the next epoch, from the first chunk of a report that has
// just arrived. The earliest possible time assumes that the request arrived at once, the latest
// that the chunk did.
func (a *agent) answered(m *hostv1.ReportChunk) {
	toRequest, toChunk := time.Duration(m.GetBeginToRequestNs()), time.Duration(m.GetBeginToChunkNs())
	now := a.c.deps.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	w, err := a.find(m.GetEpoch(), m.GetRole())
	if err != nil || w.requested.IsZero() || !w.began.IsZero() || toRequest <= 0 || toChunk < toRequest {
		return
	}
	earliest, latest := w.requested.Add(-toRequest), now.Add(-toChunk)
	if !latest.Before(earliest) { // else the reported delay is impossibly long
		w.began = earliest.Add(latest.Sub(earliest) / 2)
	}
}

// refused records why a report is not used.
func (a *agent) refused(reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.st.ReportsRefused++
	a.st.LastError = reason
}

// settled records the outcome of a role's settings.
func (a *agent) settled(role, refusal string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if refusal == "" {
		a.st.SettingsApplied++
		return
	}
	a.st.SettingsRefused++
	a.st.LastError = fmt.Sprintf("role %s refused its settings: %s", role, refusal)
}

// began counts an epoch that the host's clock began.
func (a *agent) began() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.st.Epochs++
}

func (a *agent) status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.st
}

// usesUDP records that the agent sends epochs over UDP.
func (a *agent) usesUDP() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.st.UDP = true
}

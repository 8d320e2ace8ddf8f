// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
)

const (
	operStatus = "/interfaces/interface/state/oper-status"
	eth1       = "/interfaces/interface[name=Ethernet1]"
)

// ports replies with one port.
func ports(subscribed string) ([]*gpb.Notification, error) {
	switch subscribed {
	case "ON_CHANGE " + operStatus:
		return []*gpb.Notification{note(5, eth1+"/state/oper-status", "UP")}, nil
	case "ON_CHANGE /interfaces/interface/state/id":
		return []*gpb.Notification{note(5, eth1+"/state/id", 7)}, nil
	case "ON_CHANGE /components/component/integrated-circuit/state/node-id":
		return []*gpb.Notification{note(5, "/components/component[name=chip]/integrated-circuit/state/node-id", 42)},
			nil
	}
	return nil, nil
}

func synced(w *watched) func() bool {
	return func() bool { return w.Status().State == Synced }
}

func TestSessionPublishesAndHasFacts(t *testing.T) {
	f := newFake(t)
	f.answer = ports
	w := watch(t, f.addr, func(c *SessionConfig) { c.Username, c.Password = "admin", "secret" })
	w.wait("sync", synced(w))
	facts := w.Facts()
	if len(facts.Ports) != 1 || facts.Ports[0] != (Port{Name: "Ethernet1", ID: 7}) ||
		!slices.Equal(facts.DeviceIDs, []uint64{42}) {
		t.Errorf("facts %+v", facts)
	}
	if got := w.leaves()[eth1+"/state/oper-status"]; got != "UP" {
		t.Errorf("oper-status %q; all: %v", got, w.leaves())
	}
	f.set(func() {
		if strings.Join(f.user, ":") != "admin:secret" {
			t.Errorf("credentials %v", f.user)
		}
		if !slices.Contains(f.subscribed, "SAMPLE /interfaces/interface/state/counters") {
			t.Errorf("subscribed to %v", f.subscribed)
		}
	})
	// A port goes down, and is removed.
	f.send(operStatus, note(6, eth1+"/state/oper-status", "DOWN"))
	w.wait("the port to be down", func() bool {
		return w.leaves()[eth1+"/state/oper-status"] == "DOWN" &&
			w.Facts().Ports[0].Down
	})
	f.send(operStatus, note(7, eth1, nil))
	w.wait("the port to be gone", func() bool {
		return w.leaves()[eth1+"/state/oper-status"] == "" &&
			len(w.Facts().Ports) == 0
	})
}

// OnSync is called when a device has sent its values in its first session, and in each session
// after a lost one.
func TestOnSync(t *testing.T) {
	f := newFake(t)
	f.answer = ports
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, "devices:\n  - {name: leaf1, address: \"127.0.0.1:1\", "+
		"pipeline: univmon, tls: {plaintext: true}, gnmi: {address: %q, tls: {plaintext: true}}}\n"+
		"outputs:\n  - {type: gnmi, address: \"127.0.0.1:0\", tls: {plaintext: true}}\n", f.addr))
	if err != nil {
		t.Fatal(err)
	}
	synced := make(chan string, 10)
	d, err := New(cfg, Dependencies{Schema: testSchema, Publish: func(store.Batch) error { return nil },
		Exclusive: func(func()) bool { return true }, OnSync: func(device string) { synced <- device }})
	if err != nil {
		t.Fatal(err)
	}
	d.Start()
	defer d.Stop()
	for range 2 {
		if name := <-synced; name != "leaf1" || len(synced) > 0 {
			t.Errorf("%q is reported, and %d more", name, len(synced))
		}
		f.restart()
	}
}

// A lost stream withdraws its values; facts stay until newer ones replace them.
func TestSessionLostAndReopened(t *testing.T) {
	f := newFake(t)
	f.answer = ports
	w := watch(t, f.addr)
	w.wait("sync", synced(w))
	f.set(func() { f.refuse = status.Error(codes.Unavailable, "not yet") })
	f.restart()
	w.wait("the session to be down", func() bool {
		return w.Status().Reconnects == 1 &&
			strings.Contains(w.Status().LastError, "not yet")
	})
	if got := w.leaves(); len(got) != 0 {
		t.Errorf("the session is down and its values are still there: %v", got)
	}
	if len(w.Facts().Ports) != 1 {
		t.Errorf("the session is down and the facts are gone: %+v", w.Facts())
	}
	f.set(func() {
		f.refuse = nil
		f.answer = nil
	})
	w.wait("a session without values", func() bool { return w.Status().State == NoData })
	if len(w.Facts().Ports) != 1 {
		t.Errorf("the switch says nothing, and the facts are gone: %+v", w.Facts())
	}
}

func TestCredentialsRefused(t *testing.T) {
	f := newFake(t)
	f.refuse = status.Error(codes.Unauthenticated, "no such user")
	w := watch(t, f.addr)
	w.wait("the refusal", func() bool { return strings.Contains(w.Status().LastError, "no such user") })
	if w.Facts().Number != 0 || w.Status().Reconnects != 0 {
		t.Errorf("status %+v, facts %+v", w.Status(), w.Facts())
	}
}

// A session over TLS requires a trusted certificate.
func TestTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate, which is for 127.0.0.1
	defer web.Close()
	f := newFake(t, grpc.Creds(credentials.NewServerTLSFromCert(&web.TLS.Certificates[0])))
	f.answer = ports
	trusted := x509.NewCertPool()
	trusted.AddCert(web.Certificate())
	w := watch(t, f.addr, func(c *SessionConfig) { c.TLS = &tls.Config{RootCAs: trusted} })
	w.wait("sync", synced(w))
	stranger := watch(t, f.addr, func(c *SessionConfig) { c.TLS = &tls.Config{RootCAs: x509.NewCertPool()} })
	stranger.wait("the refusal", func() bool { return strings.Contains(stranger.Status().LastError, "certificate") })
	plain := watch(t, f.addr)
	plain.wait("the refusal", func() bool { return plain.Status().State == Down && plain.Status().LastError != "" })
}

// An unsupported path costs that path only; a path without ON_CHANGE falls back to TARGET_DEFINED.
func TestPathsRefused(t *testing.T) {
	f := newFake(t)
	f.answer = func(subscribed string) ([]*gpb.Notification, error) {
		switch {
		case strings.HasPrefix(subscribed, "ON_CHANGE /interfaces"):
			return nil, status.Error(codes.InvalidArgument, "ON_CHANGE is not supported here")
		case subscribed == "TARGET_DEFINED "+operStatus:
			return []*gpb.Notification{note(5, eth1+"/state/oper-status", "UP")}, nil
		case strings.Contains(subscribed, "/lldp"):
			return nil, status.Error(codes.NotFound, "no LLDP")
		}
		return nil, nil
	}
	w := watch(t, f.addr)
	w.wait("sync", synced(w))
	if w.leaves()[eth1+"/state/oper-status"] != "UP" || w.Facts().LLDP {
		t.Errorf("leaves %v, facts %+v", w.leaves(), w.Facts())
	}
	f.set(func() {
		f.answer = func(string) ([]*gpb.Notification, error) {
			return nil,
				status.Error(codes.Unimplemented, "nothing")
		}
	})
	f.restart()
	w.wait("a switch that serves nothing", func() bool {
		return strings.Contains(w.Status().LastError,
			"none of the subscribed paths")
	})
}

// A switch that serves neither ON_CHANGE nor TARGET_DEFINED is sampled.
func TestOnlySample(t *testing.T) {
	f := newFake(t)
	f.check = func(list *gpb.SubscriptionList) (bool, error) {
		for _, sub := range list.GetSubscription() {
			if sub.GetMode() != gpb.SubscriptionMode_SAMPLE {
				return false, status.Errorf(codes.InvalidArgument, "mode %v is not supported", sub.GetMode())
			}
			if sub.GetSampleInterval() != uint64(10*time.Second) {
				return false, status.Error(codes.InvalidArgument, "only every 10 s")
			}
		}
		return false, nil
	}
	f.answer = func(subscribed string) ([]*gpb.Notification, error) {
		switch subscribed {
		case "SAMPLE " + operStatus:
			return []*gpb.Notification{note(5, eth1+"/state/oper-status", "UP")}, nil
		case "SAMPLE /interfaces/interface/state/id":
			return []*gpb.Notification{note(5, eth1+"/state/id", 7)}, nil
		}
		return nil, nil
	}
	w := watch(t, f.addr)
	w.wait("sync without a missing path", func() bool { return w.Status().State == Synced && w.Status().Missing == 0 })
	if p := w.Facts().Ports; len(p) != 1 || p[0] != (Port{Name: "Ethernet1", ID: 7}) {
		t.Errorf("ports %+v", p)
	}
}

// Without sync_response, a silent session is reopened, and one that has sent values counts as
// synced.
func TestNeverSyncs(t *testing.T) {
	f := newFake(t)
	f.noSync = true
	w := watch(t, f.addr, func(c *SessionConfig) { c.SyncTimeout = 20 * time.Millisecond })
	w.wait("the timeout of the silent session", func() bool {
		return strings.Contains(w.Status().LastError,
			"not even sync_response")
	})
	f.set(func() { f.answer = ports })
	w.wait("sync without sync_response", synced(w))
	if len(w.Facts().Ports) != 1 {
		t.Errorf("facts %+v", w.Facts())
	}
}

// Leaves outside of the schema, of another type or not subscribed to are counted and dropped; the
// rest is published.
func TestGarbage(t *testing.T) {
	f := newFake(t)
	f.encoded = []gpb.Encoding{gpb.Encoding_JSON_IETF}
	json := func(s string) *gpb.TypedValue {
		return &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(s)}}
	}
	f.answer = func(subscribed string) ([]*gpb.Notification, error) {
		if subscribed != "ON_CHANGE "+operStatus {
			return nil, nil
		}
		return []*gpb.Notification{
			note(5, eth1+"/state/oper-status", "SIDEWAYS", eth1+"/state/colour", "blue", "/nowhere/at/all", 1,
				"/collector/state/name", "mine", "/interfaces/interface/state/oper-status", "UP", eth1+"/state/mtu",
				1<<40),
			note(-1, eth1, json(`{"openconfig-interfaces:state":{"vendor:x":{"y":1},`+
				`"id":3,"counters":{"in-octets":"12"}}}`)),
			{Update: []*gpb.Update{{}, {Path: parsed(eth1)}, {Path: parsed(eth1), Val: json("{")}}},
			{Prefix: parsed("/openconfig-interfaces:interfaces"),
				Delete: []*gpb.Path{parsed("/interface[name=x]"), parsed("/*/...")}},
			note(6, eth1+"/state/oper-status", "openconfig-interfaces:DORMANT",
				"/lldp/interfaces/interface[name=Ethernet1]/neighbors/neighbor[id=1]/state/system-name",
				strings.Repeat("n", 70_000)),
		}, nil
	}
	w := watch(t, f.addr)
	w.wait("sync", synced(w))
	got := w.leaves()
	for path, want := range map[string]string{
		eth1 + "/state/oper-status": "DORMANT", eth1 + "/state/id": "3", eth1 + "/state/counters/in-octets": "12",
		eth1 + "/state/colour": "",
	} {
		if got[path] != want {
			t.Errorf("%s is %q; expected %q", path, got[path], want)
		}
	}
	st := w.Status()
	if st.Unknown < 4 || st.Refused < 4 || st.Updates != 3 {
		t.Errorf("counts %+v", st.Stats)
	}
	if w.store.Size("leaf1", "/netsketch-collector:collector/state") != 0 {
		t.Error("a device has published the collector's state")
	}
}

// A switch cannot make the collector keep more than the bound.
func TestLeavesAreBounded(t *testing.T) {
	f := newFake(t)
	f.answer = func(subscribed string) ([]*gpb.Notification, error) {
		if subscribed != "ON_CHANGE "+operStatus {
			return nil, nil
		}
		var out []*gpb.Notification
		for i := range 500 {
			out = append(out, note(int64(i+1), "/interfaces/interface[name=e"+strings.Repeat("x",
				i)+"]/state/oper-status", "UP"))
		}
		return out, nil
	}
	w := watch(t, f.addr, func(c *SessionConfig) { c.MaxLeaves = 100 })
	w.wait("sync", synced(w))
	if n := w.store.Size("leaf1", "/openconfig-interfaces:interfaces/interface"); n != 50 || w.Status().Refused != 450 {
		t.Errorf("%d rows are kept, %d leaves refused", n, w.Status().Refused)
	}
}

func TestBackOff(t *testing.T) {
	for failures, bound := range map[int]time.Duration{0: 100 * time.Millisecond, 2: 400 * time.Millisecond,
		10: time.Second, 1000: time.Second} {
		for range 100 {
			b := newBackOff(100*time.Millisecond, time.Second)
			for range failures {
				b.NextBackOff()
			}
			if d := b.NextBackOff(); d < bound/4 || d > bound+time.Nanosecond {
				t.Errorf("after %d failures %v; expected %v to %v", failures, d, bound/4, bound)
			}
		}
	}
}

func TestNewNeeds(t *testing.T) {
	if _, err := NewSession(SessionConfig{Name: "x"}); err == nil {
		t.Error("a session without an address")
	}
	s, err := NewSession(SessionConfig{Name: "x", Endpoint: Endpoint{Address: "127.0.0.1:1"}, Schema: testSchema})
	if err == nil || s != nil {
		t.Error("a session that publishes nowhere")
	}
}

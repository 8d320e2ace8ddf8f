// SPDX-License-Identifier: Apache-2.0

// Servers that behave as public bug reports and the sources of gNMI servers describe.

package southbound

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/yang"
)

// needsOrigin reports whether a request lacks an origin.
func needsOrigin(list *gpb.SubscriptionList) bool {
	return slices.ContainsFunc(list.GetSubscription(),
		func(s *gpb.Subscription) bool { return s.GetPath().GetOrigin() != "openconfig" })
}

// needsKeys reports whether a path of a request omits a key: "interface" for "interface[name=*]".
func needsKeys(list *gpb.SubscriptionList) bool {
	return slices.ContainsFunc(list.GetSubscription(), func(s *gpb.Subscription) bool {
		return slices.ContainsFunc(s.GetPath().GetElem(), func(e *gpb.PathElem) bool {
			return (e.GetName() == "interface" || e.GetName() == "component") && len(e.GetKey()) == 0
		})
	})
}

// The session tries forms of requests until the switch sends values, and begins with that form when
// it comes back.
func TestForms(t *testing.T) {
	for name, tt := range map[string]struct {
		check func(*gpb.SubscriptionList) (bool, error)
		want  Form
	}{
		"a server that is silent without an origin": {
			func(l *gpb.SubscriptionList) (bool, error) { return needsOrigin(l), nil }, forms[0]},
		"a server that matches only elements with keys": {
			func(l *gpb.SubscriptionList) (bool, error) { return needsKeys(l), nil }, forms[0]},
		"a server that refuses requests without an origin": {
			func(l *gpb.SubscriptionList) (bool, error) {
				if needsOrigin(l) {
					return false, status.Error(codes.Unimplemented, "Empty target data not supported")
				}
				return false, nil
			}, forms[0]},
		"a server that knows no origin": {
			func(l *gpb.SubscriptionList) (bool, error) {
				if !needsOrigin(l) {
					return false, status.Error(codes.Unknown, "unknown origin")
				}
				return false, nil
			}, forms[1]},
		"a server that takes * for a name": {
			func(l *gpb.SubscriptionList) (bool, error) { return !needsKeys(l), nil }, forms[2]},
		"a server that knows neither": {
			func(l *gpb.SubscriptionList) (bool, error) { return !needsOrigin(l) || !needsKeys(l), nil }, forms[3]},
		"a server that needs a target": {
			func(l *gpb.SubscriptionList) (bool, error) {
				if l.GetPrefix().GetTarget() == "" {
					return false, status.Error(codes.Unimplemented, "Empty target data not supported yet")
				}
				return false, nil
			}, forms[4]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			var mu sync.Mutex
			var asked []Form
			f.answer = ports
			f.check = func(l *gpb.SubscriptionList) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				form := Form{Wildcards: !needsKeys(l), Target: l.GetPrefix().GetTarget(), Encoding: l.GetEncoding()}
				if !needsOrigin(l) {
					form.Origin = "openconfig"
				}
				asked = append(asked, form)
				return tt.check(l)
			}
			w := watch(t, f.addr)
			w.wait("sync", synced(w))
			tt.want.Encoding = gpb.Encoding_PROTO
			if got, proven := w.Form(); got != tt.want || !proven || w.leaves()[eth1+"/state/id"] != "7" {
				t.Errorf("form %v (%v); expected %v; leaves %v", got, proven, tt.want, w.leaves())
			}
			mu.Lock()
			asked = nil
			mu.Unlock()
			f.restart()
			w.wait("another sync", func() bool { return w.Status().Reconnects == 1 && synced(w)() })
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(asked, []Form{tt.want}) {
				t.Errorf("the second session tried %v; expected %v alone", asked, tt.want)
			}
		})
	}
}

// Junos announces JSON_IETF, and answers subscriptions with values in PROTO only. After a change of
// its software, it may send values in JSON_IETF only.
func TestEncodingWithoutValues(t *testing.T) {
	f := newFake(t)
	f.answer, f.encoded = ports, []gpb.Encoding{gpb.Encoding_JSON_IETF}
	serves := func(e gpb.Encoding) {
		f.set(func() { f.check = func(l *gpb.SubscriptionList) (bool, error) { return l.GetEncoding() != e, nil } })
	}
	serves(gpb.Encoding_PROTO)
	w := watch(t, f.addr)
	w.wait("sync", synced(w))
	if form, proven := w.Form(); !proven || form != (Form{Origin: "openconfig", Wildcards: true,
		Encoding: gpb.Encoding_PROTO}) {
		t.Errorf("form %v (%v)", form, proven)
	}
	serves(gpb.Encoding_JSON_IETF)
	f.restart()
	w.wait("the other encoding", func() bool {
		form, _ := w.Form()
		return form.Encoding == gpb.Encoding_JSON_IETF && synced(w)()
	})
	f.set(func() { // the device no longer knows the encoding
		f.check = func(l *gpb.SubscriptionList) (bool, error) {
			if l.GetEncoding() != gpb.Encoding_PROTO {
				return false, status.Error(codes.Unimplemented, "unsupported encoding")
			}
			return false, nil
		}
		f.encoded = []gpb.Encoding{gpb.Encoding_PROTO}
	})
	f.restart()
	w.wait("the new encoding", func() bool {
		form, _ := w.Form()
		return form.Encoding == gpb.Encoding_PROTO && synced(w)()
	})
}

// SONiC's management framework writes a value into an object with the name of its node, and a list
// entry into an array. Junos writes booleans as numbers, and sends whole interfaces for one leaf.
func TestDialects(t *testing.T) {
	ietf := func(v string) *gpb.TypedValue {
		return &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(v)}}
	}
	for name, n := range map[string]*gpb.Notification{
		"SONiC, leaves": note(5, eth1+"/state/oper-status", ietf(`{"openconfig-interfaces:oper-status":"UP"}`),
			eth1+"/state/enabled", ietf(`{"openconfig-interfaces:enabled":true}`),
			eth1+"/state/id", ietf(`{"openconfig-p4rt:id":7}`)),
		"SONiC, an entry": note(5, eth1, ietf(`{"openconfig-interfaces:interface":[{"name":"Ethernet1",
			"state":{"oper-status":"UP","enabled":true,"openconfig-p4rt:id":7}}]}`)),
		"SONiC, a container": note(5, "/openconfig-interfaces:interfaces", ietf(`{"openconfig-interfaces:interfaces":{
			"interface":[{"name":"Ethernet1","state":{"oper-status":"UP","enabled":true,"openconfig-p4rt:id":7}}]}}`)),
		"Junos": note(5, eth1+"/init-time", 1738203675, eth1+"/state", ietf(`{"parent-ae-name":"","oper-status":"UP",
			"enabled":1,"id":7,"high-speed":800,"description":""}`)),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.encoded = []gpb.Encoding{gpb.Encoding_JSON_IETF}
			f.answer = func(subscribed string) ([]*gpb.Notification, error) {
				if subscribed == "ON_CHANGE "+operStatus {
					return []*gpb.Notification{n}, nil
				}
				return nil, nil
			}
			w := watch(t, f.addr)
			w.wait("sync", synced(w))
			got := w.leaves()
			if got[eth1+"/state/oper-status"] != "UP" || got[eth1+"/state/enabled"] != "true" || got[eth1+"/state/id"] !=
				"7" || len(w.Facts().Ports) != 1 || w.Status().Refused != 0 {
				t.Errorf("leaves %v, status %+v", got, w.Status())
			}
		})
	}
}

// Ciena's SAOS answers with paths of an origin of its own, whose values are another tree: they are
// dropped, counted and named.
func TestForeignOriginIsNamed(t *testing.T) {
	f := newFake(t)
	f.answer = func(subscribed string) ([]*gpb.Notification, error) {
		out, err := ports(subscribed)
		for _, n := range out {
			n.Prefix = &gpb.Path{Origin: "Ciena"}
		}
		return out, err
	}
	w := watch(t, f.addr)
	w.wait("the report", func() bool { return w.Status().State == NoData })
	if st := w.Status(); !strings.Contains(st.LastError, `its values are of the origin "Ciena"`) || st.Unknown == 0 {
		t.Errorf("status %+v", st)
	}
}

// Form.Path keeps the keys and origins that a configured path has.
func TestFormKeepsWhatIsGiven(t *testing.T) {
	p := parsed("/interfaces/interface[name=e1]/state")
	p.Origin = "openconfig-interfaces"
	got := forms[0].Path(testSchema(), p)
	if got.GetOrigin() != "openconfig-interfaces" || yang.PathString(got.GetElem()) != yang.PathString(p.GetElem()) {
		t.Errorf("%v", got)
	}
	got = forms[0].Path(testSchema(), parsed("/lldp/interfaces/interface/neighbors/neighbor/*/.../strange"))
	if want := "/lldp/interfaces/interface[name=*]/neighbors/neighbor[id=*]/*/.../strange"; got.GetOrigin() !=
		"openconfig" || yang.PathString(got.GetElem()) != want {
		t.Errorf("%v; expected %s", got, want)
	}
}

// A switch that syncs without a value is reported, and read when it begins to send.
func TestNoData(t *testing.T) {
	f := newFake(t)
	w := watch(t, f.addr, func(c *SessionConfig) { c.BackoffMax = time.Hour })
	w.wait("the report", func() bool { return w.Status().State == NoData })
	if !strings.Contains(w.Status().LastError, "sends no value") {
		t.Errorf("last error %q", w.Status().LastError)
	}
	f.send(operStatus, note(6, "/nowhere/at/all", 1))
	f.send(operStatus, note(6, eth1+"/state/oper-status", "UP"))
	w.wait("sync", synced(w))
	if len(w.Facts().Ports) != 1 {
		t.Errorf("facts %+v", w.Facts())
	}
}

// limitedSwitch serves at most n streams, and refuses the paths that contain one of the words.
func limitedSwitch(t *testing.T, n int, code codes.Code, limit codes.Code, words ...string) *fakeSwitch {
	f := newFake(t)
	f.answer = func(subscribed string) ([]*gpb.Notification, error) {
		for _, w := range words {
			if strings.Contains(subscribed, w) {
				return nil, status.Error(code, "cannot serve "+w)
			}
		}
		return ports(subscribed)
	}
	f.check = func(*gpb.SubscriptionList) (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.streams > n {
			return false, status.Errorf(limit, "the maximum of %d streams is reached", n)
		}
		return false, nil
	}
	return f
}

// A refused path leaves the combined stream, and the rest is combined again: two streams suffice,
// whatever code the switch refuses with.
func TestRefusedPathLeavesTheCombinedStream(t *testing.T) {
	for _, code := range []codes.Code{codes.InvalidArgument, codes.Unimplemented, codes.NotFound, codes.Unknown,
		codes.Aborted, codes.Internal, codes.FailedPrecondition, codes.PermissionDenied} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			f := limitedSwitch(t, 2, code, codes.ResourceExhausted, "/lldp", "/hardware-port")
			w := watch(t, f.addr)
			w.wait("sync", synced(w))
			refused := 6 + 1
			if st := w.Status(); st.Missing != refused || !strings.Contains(st.LastError, "cannot serve") {
				t.Errorf("status %+v; expected %d subscriptions missing", st, refused)
			}
			if len(w.Facts().Ports) != 1 || !slices.Equal(w.Facts().DeviceIDs, []uint64{42}) {
				t.Errorf("facts %+v", w.Facts())
			}
			if strings.Contains(w.Status().LastError, "limited") {
				t.Errorf("the session needs more than two streams: %+v", w.Status())
			}
		})
	}
}

// anyMode replies with one port to subscriptions of any mode.
func anyMode(subscribed string) ([]*gpb.Notification, error) {
	_, path, _ := strings.Cut(subscribed, " ")
	return ports("ON_CHANGE " + path)
}

// A refused path is tried again, and served once the switch supports it.
func TestRefusedPathIsTriedAgain(t *testing.T) {
	f := limitedSwitch(t, 40, codes.Unimplemented, codes.ResourceExhausted, "/id")
	w := watch(t, f.addr)
	w.wait("sync", synced(w))
	if w.Facts().Ports[0].ID != 0 {
		t.Fatalf("facts %+v", w.Facts())
	}
	f.set(func() { f.answer = anyMode })
	w.wait("the port's number", func() bool {
		return len(w.Facts().Ports) == 1 && w.Facts().Ports[0].ID == 7 && w.Status().Missing == 0
	})
}

// The limit of a switch is reported as its limit, not as a path that it does not serve.
func TestLimits(t *testing.T) {
	for _, code := range []codes.Code{codes.ResourceExhausted, codes.OutOfRange} {
		for name, check := range map[string]func(f *fakeSwitch, l *gpb.SubscriptionList) error{
			"subscriptions of a stream": func(_ *fakeSwitch, l *gpb.SubscriptionList) error {
				if len(l.GetSubscription()) > 6 {
					return status.Error(code, "at most 6 subscriptions")
				}
				return nil
			},
			"subscriptions and streams": func(f *fakeSwitch, l *gpb.SubscriptionList) error {
				f.mu.Lock()
				defer f.mu.Unlock()
				if f.streams > 2 || len(l.GetSubscription()) > 6 {
					return status.Error(code, "at most 2 streams of 6 subscriptions")
				}
				return nil
			},
			"no stream at all": func(*fakeSwitch, *gpb.SubscriptionList) error {
				return status.Error(code, "other collectors have all streams")
			},
		} {
			t.Run(name+" "+code.String(), func(t *testing.T) {
				t.Parallel()
				f := newFake(t)
				f.answer = ports
				f.check = func(l *gpb.SubscriptionList) (bool, error) { return false, check(f, l) }
				var lines syncBuffer
				w := watch(t, f.addr, func(c *SessionConfig) {
					c.Logger = slog.New(slog.NewTextHandler(&lines, nil))
				})
				w.wait("an outcome", func() bool {
					st := w.Status()
					return st.State == Down && st.LastError != "" || st.State == Synced
				})
				st := w.Status()
				switch name {
				case "subscriptions of a stream":
					if st.State != Synced || st.Missing != 0 {
						t.Errorf("status %+v; expected several streams", st)
					}
				case "subscriptions and streams":
					// Which subscriptions get the two streams is a matter of chance.
					if st.State != Synced || st.Missing == 0 || !strings.Contains(st.LastError, "is limited") ||
						w.leaves()[eth1+"/state/oper-status"] != "UP" && !strings.Contains(st.LastError, "/oper-status") {
						t.Errorf("status %+v", st)
					}
				default:
					if st.State != Down || !strings.Contains(st.LastError, "is limited") ||
						!strings.Contains(st.LastError, "other collectors") {
						t.Errorf("status %+v", st)
					}
				}
				if strings.Contains(lines.String(), "does not serve") {
					t.Errorf("the log calls a limit a path that is not served:\n%s", &lines)
				}
			})
		}
	}
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A combined stream that delivers some values before the switch refuses one of its paths is sorted
// like one that is refused at once.
func TestRefusedAfterValues(t *testing.T) {
	f := newFake(t)
	f.late = func(subscribed string) error {
		if strings.Contains(subscribed, "/lldp") {
			return status.Error(codes.Internal, "LLDP crashed")
		}
		return nil
	}
	f.answer = ports
	w := watch(t, f.addr)
	w.wait("sync", synced(w))
	if w.leaves()[eth1+"/state/oper-status"] != "UP" || w.Status().Missing != 6 {
		t.Errorf("leaves %v, status %+v", w.leaves(), w.Status())
	}
}

// A stream that ends after its first values is opened again while the others go on, its values are
// withdrawn meanwhile, and the wait grows until a stream has lasted.
func TestEndedStreamIsOpenedAgain(t *testing.T) {
	f := newFake(t)
	f.answer = ports
	f.check = func(l *gpb.SubscriptionList) (bool, error) { // no two paths together
		if len(l.GetSubscription()) > 1 {
			return false, status.Error(codes.ResourceExhausted, "one subscription in a stream")
		}
		return false, nil
	}
	w := watch(t, f.addr, func(c *SessionConfig) { c.BackoffBase, c.BackoffMax = 20*time.Millisecond, time.Second })
	w.wait("sync", synced(w))
	w.wait("all streams", func() bool { return w.Status().Missing == 0 })
	const id = "/interfaces/interface/state/id"
	for range 3 {
		opened := 0
		f.set(func() {
			opened = f.opened[id]
			f.answer = func(subscribed string) ([]*gpb.Notification, error) {
				if strings.HasSuffix(subscribed, id) {
					return nil, status.Error(codes.Internal, "the daemon restarts")
				}
				return anyMode(subscribed)
			}
		})
		f.end(id, status.Error(codes.Internal, "the daemon restarts"))
		w.wait("the port's number to be withdrawn", func() bool { return w.leaves()[eth1+"/state/id"] == "" })
		if w.leaves()[eth1+"/state/oper-status"] != "UP" || w.Status().State != Synced || w.Status().Reconnects != 0 {
			t.Fatalf("the other streams are gone: %v, %+v", w.leaves(), w.Status())
		}
		f.set(func() { f.answer = anyMode })
		w.wait("the port's number", func() bool { return w.leaves()[eth1+"/state/id"] == "7" })
		f.set(func() {
			if f.opened[id] <= opened {
				t.Errorf("the stream was opened %d times", f.opened[id])
			}
		})
	}
}

// A switch that ends its stream after each sync, at once or a little later, is not asked again and
// again: the waits grow, because no session lasts.
func TestSwitchClosesAfterEachSync(t *testing.T) {
	for _, pause := range []time.Duration{0, 20 * time.Millisecond} {
		t.Run(pause.String(), func(t *testing.T) {
			f := newFake(t)
			f.answer = ports
			f.closes, f.pause = true, pause
			var lines syncBuffer
			var mu sync.Mutex
			var at []time.Time
			w := watch(t, f.addr, func(c *SessionConfig) {
				c.BackoffBase, c.BackoffMax = 8*time.Millisecond, 10*time.Minute
				c.Logger = slog.New(slog.NewTextHandler(&lines, nil))
			})
			f.set(func() {
				f.check = func(*gpb.SubscriptionList) (bool, error) {
					mu.Lock()
					defer mu.Unlock()
					at = append(at, time.Now())
					return false, nil
				}
			})
			w.wait("8 sessions", func() bool { mu.Lock(); defer mu.Unlock(); return len(at) >= 8 })
			mu.Lock()
			defer mu.Unlock()
			// The wait is 8 ms after the first session and doubles after each further one. Chance makes
			// it shorter, but not below a quarter.
			if last := at[7].Sub(at[6]); last < 8*time.Millisecond<<6/4 {
				t.Errorf("the wait before the last session was %v", last)
			}
			if n := strings.Count(lines.String(), "\n"); n > 4 {
				t.Errorf("%d lines:\n%s", n, &lines)
			}
		})
	}
}

// Every dropped leaf is logged, once for each path.
func TestDroppedLeavesAreLoggedByPath(t *testing.T) {
	f := newFake(t)
	f.answer = func(subscribed string) ([]*gpb.Notification, error) {
		if !strings.HasSuffix(subscribed, operStatus) {
			return ports(subscribed)
		}
		var out []*gpb.Notification
		for i := range 3 {
			e := fmt.Sprintf("/interfaces/interface[name=e%d]", i)
			out = append(out, note(5, e+"/state/oper-status", "SIDEWAYS", e+"/state/mtu", 1<<40,
				e+"/ethernet/state/port-speed", "oc-eth:SPEED_10GB"))
		}
		return out, nil
	}
	var lines syncBuffer
	w := watch(t, f.addr, func(c *SessionConfig) { c.Logger = slog.New(slog.NewTextHandler(&lines, nil)) })
	w.wait("sync", synced(w))
	for _, leaf := range []string{"/interfaces/interface/state/oper-status", "/interfaces/interface/state/mtu"} {
		if n := strings.Count(lines.String(), "leaf="+leaf+" "); n != 1 {
			t.Errorf("%s is logged %d times:\n%s", leaf, n, &lines)
		}
	}
	if w.Status().Refused != 6 {
		t.Errorf("status %+v", w.Status())
	}
	if got := w.leaves()["/interfaces/interface[name=e1]/ethernet/state/port-speed"]; got !=
		"openconfig-if-ethernet:SPEED_10GB" {
		t.Errorf("port-speed %q; leaves %v", got, w.leaves())
	}
}

// Some devices count seconds, milliseconds or microseconds.
func TestUnitsOfTimestamps(t *testing.T) {
	now := time.Date(2026, 11, 28, 7, 0, 0, 0, time.UTC)
	for stamp, want := range map[int64]time.Time{
		0: now, -5: now, 5: time.Unix(0, 5),
		now.Unix() - 60: now.Add(-time.Minute), now.UnixMilli(): now, now.UnixMicro(): now, now.UnixNano(): now,
		now.AddDate(20, 0, 0).UnixNano(): now.AddDate(20, 0, 0), // a clock that is ahead
		int64(time.Hour):                 time.Unix(3600, 0),    // a clock that has never been set
	} {
		if got := timeOf(stamp, now); !got.Equal(want) {
			t.Errorf("%d is %v; expected %v", stamp, got, want)
		}
	}
}

// A device that closes every connection after some time, as gRPC servers do with MaxConnectionAge,
// is connected again soon, however often it does so.
func TestConnectionsAreRecycled(t *testing.T) {
	f := newFake(t, grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 300 * time.Millisecond,
		MaxConnectionAgeGrace: time.Millisecond}))
	f.answer = ports
	w := watch(t, f.addr, func(c *SessionConfig) {
		c.BackoffBase, c.BackoffMax, c.Lasting = 200*time.Millisecond, time.Hour, 5*time.Second
	})
	began := time.Now()
	const n = 9
	w.wait("some sessions", func() bool { return w.Status().Reconnects >= n })
	// The server waits a second for answers to its GOAWAY. Waits that double would take a minute.
	if took := time.Since(began); took > n*2*time.Second {
		t.Errorf("%d sessions took %v", n, took)
	}
}

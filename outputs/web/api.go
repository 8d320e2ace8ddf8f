// SPDX-License-Identifier: Apache-2.0

// The requests of the console's pages.

package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/outputs/access"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/yang"
)

// api answers the requests of pages.
type api struct {
	output *Output
	gnmi   *server.Server
	target string
	models schemaCache
}

func (a *api) handler(pages http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", pages)
	mux.HandleFunc("GET /api/info", a.info)
	mux.HandleFunc("GET /api/schema", a.schema)
	mux.HandleFunc("GET /api/flow", a.flow)
	mux.HandleFunc("POST /api/get", a.get)
	mux.HandleFunc("POST /api/subscribe", a.subscribe)
	return mux
}

// contentPolicy lets a page load nothing but the console's own files and requests.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard refuses requests of other sites and of clients that are no user, and adds the user to the
// context.
func (o *Output) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		if err := o.sameSite(r); err != nil {
			refuse(w, http.StatusForbidden, err.Error())
			return
		}
		u, ok := o.identify(r)
		if !ok {
			name, _, _ := r.BasicAuth()
			o.gnmi.Refused(server.Login, clientOf(r, name),
				errors.New("username or password is missing or wrong; both are expected by basic authentication"))
			h.Set("WWW-Authenticate", `Basic realm="netsketch", charset="UTF-8"`)
			refuse(w, http.StatusUnauthorized,
				"username or password is missing or wrong; log in as a user of the output in the configuration")
			return
		}
		next.ServeHTTP(w, r.WithContext(access.WithUser(r.Context(), u)))
	})
}

// sameSite refuses requests that a page of another site makes with the rights of this browser.
// Where no login protects a console on a loopback address, the browser must also have connected to
// a loopback name: any other name could be a site whose name now resolves to this machine.
func (o *Output) sameSite(r *http.Request) error {
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
	default:
		if strings.HasPrefix(r.URL.Path, "/api/") {
			return fmt.Errorf("a page of another site (%s) requests %.100s; open the console itself", site, r.URL.Path)
		}
	}
	if len(o.users) > 0 || !isLoopback(o.Address()) || isLoopback(r.Host) {
		return nil
	}
	return fmt.Errorf("host %.100q is not a loopback name; open %s, or configure a username and password", r.Host,
		o.URL())
}

// isLoopback reports whether an address, with or without port, names this machine by a loopback
// address or as localhost.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

func clientOf(r *http.Request, user string) string {
	text := "client " + server.Address(remote(r.RemoteAddr))
	if user != "" {
		text += ", user " + user[:min(len(user), 100)]
	}
	return text
}

// remote is the address of a browser.
type remote string

func (remote) Network() string  { return "tcp" }
func (r remote) String() string { return string(r) }

// refuse answers with an error.
func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": message}) // fails only if the browser has gone
}

// modulePrefix is the module's name in an element of a schema path.
var modulePrefix = regexp.MustCompile(`/[^/:]+:`)

// info answers with the facts about the collector that a page needs before it subscribes.
func (a *api) info(w http.ResponseWriter, r *http.Request) {
	out := struct {
		Target    string    `json:"target"`    // target of the collector's own results
		User      string    `json:"user"`      // empty without a login
		GNMI      *Endpoint `json:"gnmi"`      // null without a gNMI output
		Watchable []string  `json:"watchable"` // lists whose plugins compute any row: paths without modules
	}{a.target, access.UserOf(r.Context()).Name, a.output.deps.Endpoint(), []string{}}
	for _, list := range a.output.deps.Watchable() {
		out.Watchable = append(out.Watchable, modulePrefix.ReplaceAllString(list, "/"))
	}
	answer(w, out)
}

// answer sends a value that a browser must not keep.
func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v) // fails only if the browser has gone
}

// schema sends the tree of all modules.
func (a *api) schema(w http.ResponseWriter, r *http.Request) {
	f, err := a.models.of(a.output.deps.Schema(), &a.output.deps)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	f.serve(w, r)
}

// subscription is the body of a request to subscribe.
type subscription struct {
	// Target is the gNMI target: "" is the collector, "*" is every target.
	Target string `json:"target"`
	// Paths are gNMI paths in text form.
	Paths []string `json:"paths"`
	// IntervalMS is the shortest time between two values of a leaf, in milliseconds: 0 sends every
	// change as soon as the browser can take it.
	IntervalMS uint32 `json:"intervalMs"`
}

// readSubscription reads the body of a request; if ok is false, the request is answered.
func readSubscription(w http.ResponseWriter, r *http.Request) (req *gpb.SubscribeRequest, ok bool) {
	if t := r.Header.Get("Content-Type"); t != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, fmt.Sprintf("content type %.100q; expected application/json", t))
		return nil, false
	}
	req, err := parseSubscription(http.MaxBytesReader(w, r.Body, maxBody))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		refuse(w, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the body has more than %d bytes; subscribe to fewer paths", large.Limit))
		return nil, false
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return nil, false
	}
	return req, true
}

// parseSubscription reads the body of a request to subscribe and returns it as gNMI has it. The
// gNMI server checks the paths against the schema.
func parseSubscription(body io.Reader) (*gpb.SubscribeRequest, error) {
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	var s subscription
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("the body is no subscription: %w; expected "+
			`{"target": "", "paths": ["/collector"], "intervalMs": 0}`, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the body continues after the subscription; expected one JSON object")
	}
	if len(s.Paths) == 0 {
		return nil, errors.New("paths is empty; expected at least one path, such as /collector")
	}
	list := &gpb.SubscriptionList{Mode: gpb.SubscriptionList_STREAM, Encoding: gpb.Encoding_JSON_IETF,
		Prefix: &gpb.Path{Target: s.Target}}
	for _, text := range s.Paths {
		p, err := yang.ParsePath(text)
		if err != nil {
			return nil, errors.New(strings.TrimPrefix(err.Error(), "yang: "))
		}
		sub := &gpb.Subscription{Path: p, Mode: gpb.SubscriptionMode_ON_CHANGE}
		if s.IntervalMS > 0 {
			sub.Mode, sub.SuppressRedundant = gpb.SubscriptionMode_SAMPLE, true
			sub.SampleInterval = uint64(time.Duration(s.IntervalMS) * time.Millisecond)
		}
		list.Subscription = append(list.Subscription, sub)
	}
	return &gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}}, nil
}

// subscribe streams the values of paths as server-sent events until the browser leaves.
func (a *api) subscribe(w http.ResponseWriter, r *http.Request) {
	req, ok := readSubscription(w, r)
	if !ok {
		return
	}
	ctx := peer.NewContext(r.Context(), &peer.Peer{Addr: remote(r.RemoteAddr)})
	e := newEvents(w, a.output.config.WriteTimeout)
	err := a.gnmi.Subscribe(&stream{ctx: ctx, first: req, events: e})
	if e.close() {
		a.gnmi.Refused(server.Stream, clientOf(r, access.UserOf(ctx).Name),
			fmt.Errorf("the browser left an event unread for %s, the limit of write-timeout",
				a.output.config.WriteTimeout))
	}
	if !e.began && err != nil {
		s := status.Convert(err)
		refuse(w, httpStatus(s.Code()), s.Message())
	}
}

// get reports the error of a gNMI Get of paths; there is none if each path has a value. For a path
// with all keys of a watchable list, the plugin computes the row, or names the fault in a key.
func (a *api) get(w http.ResponseWriter, r *http.Request) {
	req, ok := readSubscription(w, r)
	if !ok {
		return
	}
	list := req.GetSubscribe()
	get := &gpb.GetRequest{Prefix: list.GetPrefix(), Encoding: list.GetEncoding()}
	for _, s := range list.GetSubscription() {
		get.Path = append(get.Path, s.GetPath())
	}
	_, err := a.gnmi.Get(peer.NewContext(r.Context(), &peer.Peer{Addr: remote(r.RemoteAddr)}), get)
	s := status.Convert(err)
	answer(w, map[string]string{"code": s.Code().String(), "error": s.Message()})
}

// httpStatus returns the status for the error of a gNMI call.
func httpStatus(c codes.Code) int {
	switch c {
	case codes.InvalidArgument, codes.Unimplemented:
		return http.StatusBadRequest
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.NotFound:
		return http.StatusNotFound
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

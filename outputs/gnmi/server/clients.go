// SPDX-License-Identifier: Apache-2.0

// Limits on the streams and paths of a client.

package server

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/yang"
)

// User is the authenticated user of a call. The zero value has no name and may read everything.
type User struct {
	Name string
	// Paths are the nodes that the user may read, with everything below them; an empty list permits
	// everything. Names have no module. A key that is missing or "*" matches any value.
	Paths []*gpb.Path
}

// caller is the origin of a call.
type caller struct {
	address string // without the port
	User
}

func (s *Server) caller(ctx context.Context) caller {
	c := caller{address: "unknown"}
	if p, ok := peer.FromContext(ctx); ok {
		c.address = Address(p.Addr)
	}
	if s.opts.User != nil {
		c.User = s.opts.User(ctx)
	}
	return c
}

// Address returns the address of a client without its port.
func Address(a net.Addr) string {
	if host, _, err := net.SplitHostPort(a.String()); err == nil {
		return host
	}
	return a.String()
}

func (c caller) String() string {
	if c.Name == "" {
		return "client " + c.address
	}
	return fmt.Sprintf("client %s, user %s", c.address, clip(c.Name))
}

// permits returns an error unless a path is at or below a node that the user may read. It refuses
// a wider path as a whole, as gnsi.pathz does, so that no client mistakes a part for everything.
func (c caller) permits(elems []*gpb.PathElem) error {
	if len(c.Paths) == 0 || slices.ContainsFunc(c.Paths, func(p *gpb.Path) bool { return below(elems, p.GetElem()) }) {
		return nil
	}
	var paths []string
	for _, p := range c.Paths {
		paths = append(paths, yang.PathString(p.GetElem()))
	}
	return status.Error(codes.PermissionDenied, short(fmt.Sprintf("path %s: user %s may read only %s and what is below",
		yang.PathString(elems), clip(c.Name), strings.Join(paths, ", "))))
}

// below reports whether all nodes that a path matches are at or below a node that top matches.
func below(path, top []*gpb.PathElem) bool {
	if len(path) < len(top) {
		return false
	}
	for i, t := range top {
		_, name, _ := cutModule(path[i].GetName())
		if name != t.GetName() { // a wildcard also matches nodes that are not below top
			return false
		}
		for key, value := range t.GetKey() {
			if value != "*" && path[i].GetKey()[key] != value {
				return false
			}
		}
	}
	return true
}

// cutModule divides "module:name".
func cutModule(s string) (module, name string, found bool) {
	if module, name, found = strings.Cut(s, ":"); !found {
		name = s
	}
	return module, name, found
}

// quota bounds the open calls of a kind: in total, per client address and per user.
type quota struct {
	rpc, what, key            string // "Subscribe", "streams", "max-streams"
	total, perClient, perUser int    // perUser 0 means no bound
	mu                        sync.Mutex
	open                      int
	byClient, byUser          map[string]int
}

func newQuota(rpc, what, key string, total, perClient, perUser int) *quota {
	return &quota{rpc: rpc, what: what, key: key, total: total, perClient: perClient, perUser: perUser,
		byClient: map[string]int{}, byUser: map[string]int{}}
}

// take counts a call, or returns an error with the bound that is reached.
func (q *quota) take(c caller) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	exhausted := func(who string, n int, suffix string) error {
		return status.Errorf(codes.ResourceExhausted,
			"%s of %s is refused: %s %d open %s, the limit of %s%s; end some, or raise it",
			q.rpc, c, who, n, q.what, q.key, suffix)
	}
	switch {
	case q.byClient[c.address] >= q.perClient:
		return exhausted("the address has", q.perClient, "-per-client")
	case q.perUser > 0 && c.Name != "" && q.byUser[c.Name] >= q.perUser:
		return exhausted("the user has", q.perUser, "-per-user")
	case q.open >= q.total:
		return exhausted("all clients have", q.open, "")
	}
	q.open++
	q.byClient[c.address]++
	if c.Name != "" {
		q.byUser[c.Name]++
	}
	return nil
}

func (q *quota) release(c caller) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open--
	decrement(q.byClient, c.address)
	if c.Name != "" {
		decrement(q.byUser, c.Name)
	}
}

func decrement(m map[string]int, key string) {
	if m[key]--; m[key] == 0 {
		delete(m, key)
	}
}

// count returns the number of open calls.
func (q *quota) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open
}

// waiting holds the streams that have not sent a first message; they do not count in the quota of
// streams. If a client address opens more waiting streams than the limit, its oldest one ends. A
// client that sends its message at once is therefore served even if another client at the same
// address never sends one.
type waiting struct {
	limit    int // per client address
	mu       sync.Mutex
	open     int
	byClient map[string][]chan struct{} // oldest first; closing a channel ends the stream
}

// add adds a stream. The returned channel is closed if the stream must end.
func (w *waiting) add(c caller) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	end := make(chan struct{})
	all := append(w.byClient[c.address], end)
	w.open++
	if len(all) > w.limit {
		close(all[0])
		all = all[1:]
		w.open--
	}
	w.byClient[c.address] = all
	return end
}

// remove removes a stream that add returned.
func (w *waiting) remove(c caller, end chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.byClient[c.address]
	i := slices.Index(all, end)
	if i < 0 {
		return // add has already ended the stream
	}
	w.open--
	if all = slices.Delete(all, i, i+1); len(all) == 0 {
		delete(w.byClient, c.address)
		return
	}
	w.byClient[c.address] = all
}

func (w *waiting) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open
}

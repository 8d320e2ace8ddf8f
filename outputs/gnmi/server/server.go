// SPDX-License-Identifier: Apache-2.0

// The server: its options, limits, and the short RPCs.

package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang"
)

// Version is the gNMI version that Capabilities reports.
const Version = "0.10.0"

// Options configure a server. Store and Schema are required.
type Options struct {
	Store *store.Store
	// Schema returns the current schema. It is called for every request, so that modules may be
	// added while the server runs.
	Schema func() *yang.Schema

	// AnyTarget lets clients call the store's default target by any name, as devices do. Otherwise,
	// targets must exist in the store, and "*" means all targets.
	AnyTarget bool
	// Atomic are the schema paths of containers and lists that are sent whole, in notifications
	// marked atomic, whenever a leaf in them changes.
	Atomic []string
	// Refresh, if set, updates the store. It is called before current values are read (Get, ONCE,
	// POLL, a sample).
	Refresh func()
	// Streaming, if set, is called with true when the first STREAM begins, and with false when the
	// last one has ended, one call at a time.
	Streaming func(on bool)
	// Apply, if set, carries out Set requests. Without it Set is refused as unimplemented.
	Apply Apply
	// Checkpoint, if set, returns a function that restores the configuration of now. With it, the
	// server serves the extensions master_arbitration and commit: it takes back a Set that is not
	// confirmed in time.
	Checkpoint func() (restore func() error)
	// Querier, if set, computes rows that a Get names with all their keys and that are not in the
	// store.
	Querier Querier

	// User, if set, returns the authenticated user of a call.
	User func(context.Context) User

	// LowestInterval is the shortest interval of samples and of heartbeats; 0 means 100 ms.
	LowestInterval time.Duration
	// MaxStreams, MaxStreamsPerClient and MaxStreamsPerUser bound the open Subscribe calls that have
	// sent their first message: in total, per client address and per user. 0 means 1,024, 256 and
	// 512. Per address, MaxStreamsPerClient also bounds the calls without a first message.
	MaxStreams, MaxStreamsPerClient, MaxStreamsPerUser int
	// MaxGets and MaxGetsPerClient bound the Gets in progress, in total and per client address; 0
	// means 64 and 16.
	MaxGets, MaxGetsPerClient int
	// FirstMessageTimeout bounds the wait for the first message of a stream; 0 means 10 s.
	FirstMessageTimeout time.Duration
	// PollIdleTimeout bounds the time between two Polls of a POLL subscription; 0 means 1 h.
	PollIdleTimeout time.Duration
	// MaxPaths bounds the paths of one request; 0 means 10,000.
	MaxPaths int
	// MaxGetLeaves bounds the leaves in the reply to one Get; 0 means 200,000.
	MaxGetLeaves int

	// Logger receives errors; nil disables logging.
	Logger *slog.Logger
	// Now returns the time for measuring delivery; nil is time.Now.
	Now func() time.Time
}

// Querier computes one row of a list. The list is a schema path as in table.Table.List; keys has a
// value for every key of the list. The view holds only this row. If it fails, the Get fails with
// the error's status code, as status.FromError returns it.
type Querier interface {
	Query(ctx context.Context, target, list string, keys map[string]string) (*store.View, error)
}

// Server is a gNMI server. Create it with New, register it with Register or as gpb.GNMIServer, and
// Close it before the gRPC server stops.
type Server struct {
	gpb.UnimplementedGNMIServer

	opts    Options
	atomics map[string]bool
	whole   int // largest size of a list sent whole
	stats   stats
	infos   sync.Map // *store.List → *listInfo

	stopping chan struct{}
	stopOnce sync.Once

	streams  *quota
	gets     *quota
	waiting  waiting
	refusals refusals
	commits  commits

	mu        sync.Mutex // held by enter and Close
	hook      sync.Mutex
	streaming int            // STREAM subscriptions, guarded by hook
	idle      sync.WaitGroup // Subscribe calls
}

// New returns a server. It fails if options are missing or contradict the schema.
func New(o Options) (*Server, error) {
	if o.Store == nil || o.Schema == nil {
		return nil, errors.New("gnmi: a server needs a store and a schema")
	}
	setDefault(&o.LowestInterval, 100*time.Millisecond)
	setDefault(&o.MaxStreams, 1024)
	setDefault(&o.MaxStreamsPerClient, 256)
	setDefault(&o.MaxStreamsPerUser, 512)
	setDefault(&o.MaxGets, 64)
	setDefault(&o.MaxGetsPerClient, 16)
	setDefault(&o.FirstMessageTimeout, 10*time.Second)
	setDefault(&o.PollIdleTimeout, time.Hour)
	setDefault(&o.MaxPaths, 10_000)
	setDefault(&o.MaxGetLeaves, 200_000)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{
		opts: o, atomics: map[string]bool{}, whole: wholeSize, stopping: make(chan struct{}),
		streams: newQuota("Subscribe", "streams", "max-streams", o.MaxStreams, o.MaxStreamsPerClient,
			o.MaxStreamsPerUser),
		gets:     newQuota("Get", "Gets", "max-gets", o.MaxGets, o.MaxGetsPerClient, 0),
		waiting:  waiting{limit: o.MaxStreamsPerClient, byClient: map[string][]chan struct{}{}},
		refusals: refusals{logger: o.Logger, kinds: map[Kind]*refusal{}},
	}
	for _, p := range o.Atomic {
		n, err := o.Schema().Node(p)
		if err != nil {
			return nil, errors.Join(errors.New("gnmi: an atomic container"), err)
		}
		s.atomics[n.Path] = true
	}
	return s, nil
}

func setDefault[T ~int | ~int64](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Register registers the server with a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { gpb.RegisterGNMIServer(r, s) }

// Close ends every stream with status Unavailable, and waits for the streams' ends or until ctx
// ends, whose error it returns then. A stream whose client does not read ends only when the gRPC
// server stops.
func (s *Server) Close(ctx context.Context) error {
	s.stopOnce.Do(func() {
		s.mu.Lock()
		close(s.stopping)
		s.mu.Unlock()
		s.commits.close()
		s.refusals.close()
	})
	done := make(chan struct{})
	go func() {
		s.idle.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Capabilities lists the modules with their versions, and the supported encodings.
func (s *Server) Capabilities(ctx context.Context, req *gpb.CapabilityRequest) (*gpb.CapabilityResponse, error) {
	if _, err := extensions(req.GetExtension(), false); err != nil {
		return nil, err
	}
	resp := &gpb.CapabilityResponse{
		GNMIVersion:        Version,
		SupportedEncodings: []gpb.Encoding{gpb.Encoding_JSON, gpb.Encoding_JSON_IETF, gpb.Encoding_PROTO},
	}
	for _, m := range s.opts.Schema().Models() {
		resp.SupportedModels = append(resp.SupportedModels, modelData(m))
	}
	return resp, nil
}

func (s *Server) refresh() {
	if s.opts.Refresh != nil {
		s.opts.Refresh()
	}
}

// enter begins a Subscribe call, for which Close waits.
func (s *Server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stopping:
		return errStopping
	default:
	}
	s.idle.Add(1)
	return nil
}

var errStopping = status.Error(codes.Unavailable, "the server is shutting down")

// stream adds 1 or -1 to the number of STREAM subscriptions, and calls Streaming for the first and
// after the last.
func (s *Server) stream(by int) {
	s.hook.Lock()
	defer s.hook.Unlock()
	s.streaming += by
	if s.opts.Streaming != nil && (by > 0 && s.streaming == 1 || s.streaming == 0) {
		s.opts.Streaming(s.streaming > 0)
	}
}

// Stats are counts since the server was created. Streams, Waiting and Gets are current numbers.
type Stats struct {
	Streams int // open Subscribe calls that have sent their first message
	Waiting int // Subscribe calls without a first message
	Gets    int // Gets in progress

	RefusedBy map[Kind]uint64

	Requests  uint64 // RPCs, including refused ones
	Refused   uint64 // RPCs refused as invalid or over a limit
	Updates   uint64 // leaves sent, including deletes
	Coalesced uint64 // changes merged into later ones for slow subscribers
	Messages  uint64 // SubscribeResponses sent
	Bytes     uint64 // size of the messages in bytes
	// Delivery is the time from the end of the newest epoch to its first update on a stream; 0 if no
	// update was sent.
	Delivery time.Duration
}

type stats struct {
	requests, refused, updates, coalesced, messages, bytes atomic.Uint64

	newest   atomic.Int64 // latest timestamp sent
	delivery atomic.Int64
}

// Stats returns the current counts.
func (s *Server) Stats() Stats {
	by := map[Kind]uint64{}
	for _, kind := range []Kind{Login, Connection, Stream, Get, Path} {
		by[kind] = s.refusals.count(kind)
	}
	return Stats{
		Streams: s.streams.count(), Waiting: s.waiting.count(), Gets: s.gets.count(), RefusedBy: by,
		Requests: s.stats.requests.Load(), Refused: s.stats.refused.Load(),
		Updates: s.stats.updates.Load(), Coalesced: s.stats.coalesced.Load(), Messages: s.stats.messages.Load(),
		Bytes: s.stats.bytes.Load(), Delivery: time.Duration(s.stats.delivery.Load()),
	}
}

// delivered records the time when the first update of an epoch was sent.
func (s *Server) delivered(meta store.Meta) {
	ts := meta.Time.UnixNano()
	for {
		newest := s.stats.newest.Load()
		if ts <= newest {
			return
		}
		if s.stats.newest.CompareAndSwap(newest, ts) {
			if d := s.opts.Now().Sub(meta.Time); d > 0 {
				s.stats.delivery.Store(int64(d))
			}
			return
		}
	}
}

func modelData(m yang.Model) *gpb.ModelData {
	return &gpb.ModelData{Name: m.Name, Organization: m.Organization, Version: m.Version}
}

// models checks use_models and returns the names; nil for all models.
func models(schema *yang.Schema, use []*gpb.ModelData) (map[string]bool, error) {
	if len(use) == 0 {
		return nil, nil
	}
	served := schema.Models()
	out := map[string]bool{}
	for _, u := range use {
		i := slices.IndexFunc(served, func(m yang.Model) bool {
			return m.Name == u.GetName() &&
				(u.GetVersion() == "" || u.GetVersion() == m.Version) &&
				(u.GetOrganization() == "" || u.GetOrganization() == m.Organization)
		})
		if i < 0 {
			return nil, status.Errorf(codes.InvalidArgument,
				"use_models: model %q (organization %q, version %q) is not supported; Capabilities lists the supported ones",
				clip(u.GetName()), clip(u.GetOrganization()), clip(u.GetVersion()))
		}
		out[served[i].Name] = true
	}
	return out, nil
}

// clip shortens a client's text for an error.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

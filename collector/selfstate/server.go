// SPDX-License-Identifier: Apache-2.0

package selfstate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/netsketch/netsketch/collector/schema"
	"github.com/netsketch/netsketch/internal/store"
)

// Bounds that protect the server.
const (
	maxConnections = 64
	maxScrapes     = 4
	scrapeTimeout  = 10 * time.Second
)

// Health holds the conditions that /healthz and /readyz report. All are false at first.
type Health struct {
	// Components is true while all components run.
	Components atomic.Bool
	// Schema is true when each configured plugin has been started, or has failed to start.
	Schema atomic.Bool
	// Epochs is true while the epoch engine runs.
	Epochs atomic.Bool
	// Outputs is true while the outputs run.
	Outputs atomic.Bool
}

// condition is a condition with its name in responses.
type condition struct {
	name string
	ok   *atomic.Bool
}

// ServerConfig configures a Server.
type ServerConfig struct {
	// Address is where the server listens, host:port.
	Address string
	// Version is the version of the program.
	Version string
	// Results are the paths of the lists that /metrics/results serves, and ResultRows is the largest
	// number of rows of each list. Without lists, the page does not exist.
	Results    []string
	ResultRows int
}

// ServerDependencies are what NewServer needs from its caller. All are required.
type ServerDependencies struct {
	Store  *store.Store
	Schema *schema.Registry
	Health *Health
	Logger *slog.Logger
}

// Server serves /metrics, /metrics/results, /healthz and /readyz. Create it with NewServer.
type Server struct {
	cfg      ServerConfig
	log      *slog.Logger
	http     http.Server
	listener net.Listener
	work     sync.WaitGroup
}

// NewServer returns a server that is not started.
func NewServer(cfg ServerConfig, deps ServerDependencies) *Server {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "netsketch_build_info", Help: "Version of the program; the value is 1.",
		ConstLabels: prometheus.Labels{"version": cfg.Version},
	})
	build.Set(1)
	registry.MustRegister(
		&leafMetrics{store: deps.Store, schema: deps.Schema.Current, metrics: map[leafKey]*leafMetric{}}, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	h := deps.Health
	alive := []condition{{"components", &h.Components}}
	ready := append(alive, condition{"schema", &h.Schema}, condition{"epochs", &h.Epochs},
		condition{"outputs", &h.Outputs})
	mux := http.NewServeMux()
	scrape := promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(deps.Logger.Handler(), slog.LevelWarn),
		MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout}
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, scrape))
	if len(cfg.Results) > 0 {
		results := prometheus.NewRegistry()
		results.MustRegister(&resultMetrics{store: deps.Store, schema: deps.Schema.Current, lists: cfg.Results,
			rows: cfg.ResultRows})
		mux.Handle("GET /metrics/results", promhttp.HandlerFor(results, scrape))
	}
	mux.Handle("GET /healthz", conditions(alive))
	mux.Handle("GET /readyz", conditions(ready))
	s := &Server{cfg: cfg, log: deps.Logger}
	s.http = http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 2 * scrapeTimeout,
		IdleTimeout:  time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(deps.Logger.Handler(), slog.LevelDebug),
	}
	return s
}

// conditions responds with one line per condition, with status 200 if all are true, otherwise with
// 503.
func conditions(all []condition) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		code := http.StatusOK
		var body strings.Builder
		for _, c := range all {
			text := "ok"
			if !c.ok.Load() {
				text, code = "not ready", http.StatusServiceUnavailable
			}
			fmt.Fprintf(&body, "%s: %s\n", c.name, text)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(code)
		fmt.Fprint(w, body.String())
	})
}

// Start listens and serves until Stop.
func (s *Server) Start() error {
	listener, err := net.Listen("tcp", s.cfg.Address)
	if err != nil {
		return fmt.Errorf("http: listening on %s: %w; choose another http.address", s.cfg.Address, err)
	}
	s.listener = listener
	s.work.Go(func() {
		if err := s.http.Serve(netutil.LimitListener(listener, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the HTTP server has stopped", "address", s.Address(), "error", err)
		}
	})
	s.log.Info("serving /metrics, /healthz and /readyz", "address", s.Address())
	return nil
}

// Address returns the address that the server listens on; "" before Start.
func (s *Server) Address() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Stop waits for open requests until ctx ends, closes all connections, and waits for the server's
// goroutine.
func (s *Server) Stop(ctx context.Context) {
	if err := s.http.Shutdown(ctx); err != nil {
		s.http.Close()
	}
	s.work.Wait()
}

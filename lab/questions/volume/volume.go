// SPDX-License-Identifier: Apache-2.0

// Package volume counts what the results of plugins cost their readers, by what crosses the wire:
// updates and deletes of a gNMI subscription, points that an InfluxDB output writes, time series of
// /metrics/results. It needs nothing else of netsketch, so it also counts in older commits.
package volume

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Volume is what an epoch of a plugin costs its readers. EpochOnly are the updates of leaves that
// only say the epoch.
type Volume struct{ Rows, Updates, EpochOnly, Deletes, Points, Series int }

// Above reports whether a volume is more than a tenth, and 50, above a recorded one.
func (v Volume) Above(recorded Volume) bool {
	more := func(n, than int) bool { return n > than+than/10+50 }
	return more(v.Rows, recorded.Rows) || more(v.Updates, recorded.Updates) || more(v.Deletes, recorded.Deletes) ||
		more(v.Points, recorded.Points) || more(v.Series, recorded.Series)
}

// Counter counts by plugin. It is the database of an InfluxDB output.
type Counter struct {
	// Plugins are those that are counted.
	Plugins []string
	// Database receives the requests of the output after they are counted; nil accepts them.
	Database http.Handler

	mu   sync.Mutex
	by   map[string]*Volume
	last time.Time // when something was counted
	err  error     // the first one of the subscription or of a request
}

// Begin forgets what was counted.
func (c *Counter) Begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by, c.last = nil, time.Now()
}

// count changes the volume of a plugin.
func (c *Counter) count(plugin string, change func(*Volume)) {
	if !slices.Contains(c.Plugins, plugin) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]*Volume{}
	}
	if c.by[plugin] == nil {
		c.by[plugin] = &Volume{}
	}
	change(c.by[plugin])
	c.last = time.Now()
}

func (c *Counter) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errors.Join(c.err, err)
}

// Settle waits until nothing was counted for a time.
func (c *Counter) Settle(quiet time.Duration) error {
	for begin := time.Now(); ; {
		c.mu.Lock()
		since, err := min(time.Since(c.last), time.Since(begin)), c.err
		c.mu.Unlock()
		if err != nil || since > quiet {
			return err
		}
		time.Sleep(quiet - since + time.Millisecond)
	}
}

func (c *Counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && strings.HasSuffix(r.URL.Path, "/write") {
		err = c.points(bytes.NewReader(body), r.Header.Get("Content-Encoding") == "gzip")
	}
	if err != nil {
		c.fail(err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if c.Database == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.Database.ServeHTTP(w, r)
}

// points counts lines of InfluxDB's line protocol. A measurement is named after plugin and list.
func (c *Counter) points(lines io.Reader, zipped bool) error {
	if zipped {
		z, err := gzip.NewReader(lines)
		if err != nil {
			return err
		}
		lines = z
	}
	scan := bufio.NewScanner(lines)
	scan.Buffer(nil, 1<<24)
	for scan.Scan() {
		if plugin, _, ok := strings.Cut(scan.Text(), "/"); ok {
			c.count(plugin, func(v *Volume) { v.Points++ })
		}
	}
	return scan.Err()
}

// Follow subscribes to the plugins' results on change. It returns once the initial values have
// arrived, and counts the updates and deletes after them in the background.
func (c *Counter) Follow(ctx context.Context, address string) error {
	conn, stream, err := subscribe(ctx, address, gnmi.SubscriptionList_STREAM, c.Plugins...)
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return errors.Join(err, conn.Close())
		}
		if resp.GetSyncResponse() {
			break
		}
	}
	go func() {
		defer conn.Close()
		for {
			resp, err := stream.Recv()
			if err != nil {
				if ctx.Err() == nil {
					c.fail(err)
				}
				return
			}
			for _, u := range resp.GetUpdate().GetUpdate() {
				elems := slices.Concat(resp.GetUpdate().GetPrefix().GetElem(), u.GetPath().GetElem())
				c.count(elems[0].GetName(), func(v *Volume) {
					if v.Updates++; elems[len(elems)-1].GetName() == "epoch" {
						v.EpochOnly++
					}
				})
			}
			for _, p := range resp.GetUpdate().GetDelete() {
				elems := slices.Concat(resp.GetUpdate().GetPrefix().GetElem(), p.GetElem())
				c.count(elems[0].GetName(), func(v *Volume) { v.Deletes++ })
			}
		}
	}()
	return nil
}

// Of returns what was counted of a plugin, with its rows and time series now.
func (c *Counter) Of(ctx context.Context, plugin, address, metrics string) (v Volume, err error) {
	c.mu.Lock()
	if c.by[plugin] != nil {
		v = *c.by[plugin]
	}
	err = c.err
	c.mu.Unlock()
	if err != nil {
		return v, err
	}
	if v.Rows, err = rows(ctx, address, plugin); err != nil {
		return v, err
	}
	v.Series, err = series(ctx, metrics, plugin)
	return v, err
}

func subscribe(ctx context.Context, address string, mode gnmi.SubscriptionList_Mode, plugins ...string,
) (*grpc.ClientConn, gnmi.GNMI_SubscribeClient, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20)))
	if err != nil {
		return nil, nil, err
	}
	list := &gnmi.SubscriptionList{Mode: mode, Encoding: gnmi.Encoding_PROTO}
	for _, plugin := range plugins {
		list.Subscription = append(list.Subscription, &gnmi.Subscription{
			Path: &gnmi.Path{Elem: []*gnmi.PathElem{{Name: plugin}}}, Mode: gnmi.SubscriptionMode_ON_CHANGE})
	}
	stream, err := gnmi.NewGNMIClient(conn).Subscribe(ctx)
	if err == nil {
		err = stream.Send(&gnmi.SubscribeRequest{Request: &gnmi.SubscribeRequest_Subscribe{Subscribe: list}})
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, stream, nil
}

// rows counts the entries of lists that have a container state.
func rows(ctx context.Context, address, plugin string) (int, error) {
	conn, stream, err := subscribe(ctx, address, gnmi.SubscriptionList_ONCE, plugin)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	entries := map[string]bool{}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return len(entries), nil
		}
		if err != nil {
			return 0, err
		}
		for _, u := range resp.GetUpdate().GetUpdate() {
			name, keyed := "", false
			for _, e := range slices.Concat(resp.GetUpdate().GetPrefix().GetElem(), u.GetPath().GetElem()) {
				if e.GetName() == "state" && keyed {
					entries[name] = true
					break
				}
				keyed = keyed || len(e.GetKey()) > 0
				name += "/" + e.GetName()
				for _, k := range slices.Sorted(maps.Keys(e.GetKey())) {
					name += fmt.Sprintf("[%s=%s]", k, e.GetKey()[k])
				}
			}
		}
	}
}

// series counts the time series of a plugin in an exposition of Prometheus.
func series(ctx context.Context, url, plugin string) (n int, err error) {
	for range 10 { // a busy machine answers after the time that a scrape may take
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return 0, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		body, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return 0, err
		}
		if resp.StatusCode == http.StatusServiceUnavailable {
			continue
		}
		if resp.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("%s: %s", url, resp.Status)
		}
		for line := range strings.Lines(string(body)) {
			if strings.HasPrefix(line, "netsketch_"+plugin+"_") {
				n++
			}
		}
		return n, nil
	}
	return 0, fmt.Errorf("%s is not available", url)
}

// SPDX-License-Identifier: Apache-2.0

package devconfig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrNoCollector is wrapped if no collector uses a directory.
var ErrNoCollector = errors.New("no collector answers")

// maxRequest and maxReply bound a message between a command and the collector, in bytes.
const (
	maxRequest = 1 << 20
	maxReply   = 256 << 20
)

// Request is a command for devices: "plan", "apply" or "revert".
type Request struct {
	Command string   `json:"command"`
	Devices []string `json:"devices,omitempty"`
	Digest  string   `json:"digest,omitempty"`
}

// Reply is the answer to a command.
type Reply struct {
	Plans []*Plan `json:"plans,omitempty"`
	// Applied are the devices that were set.
	Applied []string `json:"applied,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// Do carries out a command.
func (c *Component) Do(ctx context.Context, r Request) (reply Reply) {
	var err error
	switch {
	case r.Command == "plan":
		reply.Plans, err = c.Plan(ctx, r.Devices...)
	case r.Command == "apply":
		reply.Applied, err = c.Apply(ctx, r.Digest, r.Devices...)
	case r.Command == "revert" && len(r.Devices) == 1:
		var restored bool
		if restored, err = c.Revert(ctx, r.Devices[0]); restored && err == nil {
			reply.Applied = r.Devices
		}
	default:
		err = fmt.Errorf("a command %q of %d devices is not known", r.Command, len(r.Devices))
	}
	if err != nil {
		reply.Error = err.Error()
	}
	return reply
}

// socketName is the socket in the directory, by which commands reach the collector. Only the user
// of the collector can open it.
const socketName = "collector.sock"

// maxSocketPath bounds the path of a socket on every system, in bytes.
const maxSocketPath = 103

// server answers commands.
type server struct {
	http *http.Server
	lock *os.File
	path string
}

// serve locks a directory and answers commands on a socket in it.
func serve(dir string, c *Component) (*server, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("%s is used by another collector; expected a directory for each: %w", dir, err)
	}
	path := filepath.Join(dir, socketName)
	if len(path) > maxSocketPath {
		lock.Close()
		return nil, fmt.Errorf("%s: a socket has a path of at most %d bytes; choose a shorter directory", path, maxSocketPath)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // socket of a collector that was killed
		lock.Close()
		return nil, err
	}
	lis, err := net.Listen("unix", path)
	if err != nil {
		lock.Close()
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, lis.Close(), lock.Close())
	}
	s := &server{lock: lock, path: path, http: &http.Server{ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var request Request
			if err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(&request); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			_ = json.NewEncoder(w).Encode(c.Do(r.Context(), request)) // fails only if the command has gone
		})}}
	go func() { _ = s.http.Serve(lis) }() // returns when close is called
	return s, nil
}

func (s *server) close() {
	_ = s.http.Close() // closes the listener, which removes the socket
	_ = s.lock.Close()
}

// Call sends a command to the collector that uses a directory.
func Call(ctx context.Context, dir string, r Request) (reply Reply, err error) {
	path := filepath.Join(dir, socketName)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	data, err := json.Marshal(r)
	if err != nil {
		return reply, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://collector/", bytes.NewReader(data))
	if err != nil {
		return reply, err
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return reply, fmt.Errorf("%w on %s", ErrNoCollector, path)
	case err != nil:
		return reply, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return reply, fmt.Errorf("%s: %s", path, strings.TrimSpace(string(text)))
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, maxReply)).Decode(&reply)
	return reply, err
}

// SPDX-License-Identifier: Apache-2.0

// Package bustest runs NATS servers for tests.
package bustest

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/netsketch/netsketch/collector/cluster/bus"
)

// startTimeout bounds the start of a server on a busy machine.
const startTimeout = 20 * time.Second

// Options configure a NATS server of a test and its clients.
type Options struct {
	// TLS secures connections; nil uses plaintext.
	TLS *tls.Config
	// Username and Password are the credentials of all clients; empty if clients need none.
	Username, Password string
	// Operator has the accounts and users; nil for a server without accounts.
	Operator *Operator
}

// Server starts a NATS server with JetStream on a random port of the loopback interface, and
// returns its address. The server ends with the test. Tests must create buckets and streams in
// memory.
func Server(tb testing.TB) string {
	tb.Helper()
	address, _ := ServerWith(tb, Options{})
	return address
}

// ServerWith is Server with options. reload replaces them while the server runs.
func ServerWith(tb testing.TB, o Options) (address string, reload func(Options)) {
	tb.Helper()
	directory := tb.TempDir()
	options := func(o Options) *server.Options {
		out := &server.Options{
			ServerName: tb.Name(), Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: directory,
			NoSigs: true, NoLog: true, TLS: o.TLS != nil, TLSConfig: o.TLS, Username: o.Username, Password: o.Password,
		}
		if o.Operator != nil {
			out.TrustedOperators = []*jwt.OperatorClaims{o.Operator.claims}
			out.AccountResolver, out.SystemAccount = o.Operator.accounts, o.Operator.system
		}
		return out
	}
	s, err := server.NewServer(options(o))
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	tb.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(startTimeout) {
		tb.Fatal("the NATS server does not accept connections")
	}
	return s.Addr().String(), func(o Options) {
		tb.Helper()
		if err := s.ReloadOptions(options(o)); err != nil {
			tb.Fatal(err)
		}
	}
}

// Cluster is NATS servers that replicate buckets and streams: nats0, nats1 and so on. Each server
// is a process, because a server of version 2.15 may never stop when its disk is full: a purge that
// cannot write waits for a lock that the purge itself holds.
type Cluster struct {
	Addresses []string // addresses for clients

	tb        testing.TB
	nodes     []node
	processes []*process // nil for a server that does not run
}

// node configures a server of a cluster.
type node struct {
	Name, Directory, Log, Address, Route string
	Routes                               []string
}

// process is a server that runs.
type process struct {
	*exec.Cmd
	input io.Closer // standard input: the server ends when it is closed, and so ends with the test process
	ended chan error
}

// nodeVariable names the environment variable with a server's configuration. If it is set, the test
// program runs that server instead of tests.
const nodeVariable = "NETSKETCH_TEST_NATS"

// stopTimeout is how long a server may take to end before it is killed.
const stopTimeout = 10 * time.Second

func init() {
	if text, ok := os.LookupEnv(nodeVariable); ok {
		if err := serve(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// serve runs a server until its standard input ends.
func serve(text string) error {
	var n node
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return err
	}
	o := &server.Options{ServerName: n.Name, NoSigs: true, JetStream: true, StoreDir: n.Directory,
		JetStreamMaxStore: 1 << 30, LogFile: n.Log}
	if err := listen(n.Address, &o.Host, &o.Port); err != nil {
		return err
	}
	if len(n.Routes) > 1 {
		o.Cluster = server.ClusterOpts{Name: "nats", PoolSize: -1}
		if err := listen(n.Route, &o.Cluster.Host, &o.Cluster.Port); err != nil {
			return err
		}
		for _, r := range n.Routes {
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: r})
		}
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	_, err = io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
	s.WaitForShutdown()
	return err
}

// StartCluster starts a NATS server for each directory, which holds the server's files. Each server
// may store a gigabyte, even if the disk is smaller. The servers end with the test.
func StartCluster(tb testing.TB, directories ...string) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb, processes: make([]*process, len(directories))}
	// Only this process and its servers listen on this address, so a port found free stays free.
	pid := os.Getpid()
	host := net.IPv4(127, byte(128|pid>>16), byte(pid>>8), byte(pid)).String()
	var routes []string
	for range directories {
		routes = append(routes, free(tb, host))
	}
	logs := tb.TempDir()
	for i, directory := range directories {
		name := fmt.Sprint("nats", i)
		c.Addresses = append(c.Addresses, free(tb, host))
		c.nodes = append(c.nodes, node{Name: name, Directory: directory, Log: filepath.Join(logs, name),
			Address: c.Addresses[i], Route: routes[i], Routes: routes})
	}
	tb.Cleanup(func() {
		for i := range directories {
			if tb.Failed() {
				tb.Logf("log of nats%d:\n%s", i, c.Log(i))
			}
			c.Stop(i)
		}
	})
	for i := range directories {
		c.Start(i)
	}
	return c
}

// Start starts a server again.
func (c *Cluster) Start(i int) {
	c.tb.Helper()
	text, err := json.Marshal(c.nodes[i])
	if err != nil {
		c.tb.Fatal(err)
	}
	p := &process{Cmd: exec.Command(os.Args[0]), ended: make(chan error, 1)}
	p.Env = append(os.Environ(), nodeVariable+"="+string(text))
	p.Stderr = os.Stderr
	if p.input, err = p.StdinPipe(); err == nil {
		err = p.Cmd.Start()
	}
	if err != nil {
		c.tb.Fatal(err)
	}
	go func() { p.ended <- p.Wait() }()
	c.processes[i] = p
	for end := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", c.Addresses[i])
		if err == nil {
			conn.Close()
			return
		}
		select {
		case err := <-p.ended:
			c.processes[i] = nil
			c.tb.Fatalf("the NATS server has ended: %v", err)
		default:
		}
		if time.Now().After(end) {
			c.tb.Fatalf("the NATS server does not accept connections: %v", err)
		}
	}
}

// Stop ends a server, and kills it if it does not end.
func (c *Cluster) Stop(i int) {
	p := c.processes[i]
	if p == nil {
		return
	}
	c.processes[i] = nil
	p.input.Close()
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		c.tb.Logf("nats%d has not ended within %v, and is killed", i, stopTimeout)
		if err := p.Process.Kill(); err != nil {
			c.tb.Error(err)
		}
		<-p.ended
	}
}

// Log returns the log of a server.
func (c *Cluster) Log(i int) string {
	text, err := os.ReadFile(c.nodes[i].Log)
	if err != nil {
		c.tb.Error(err)
	}
	return string(text)
}

// free returns an address with a free port.
func free(tb testing.TB, host string) string {
	tb.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// listen splits the address at which a server listens.
func listen(address string, host *string, port *int) error {
	h, number, err := net.SplitHostPort(address)
	if err == nil {
		*host = h
		*port, err = strconv.Atoi(number)
	}
	return err
}

// Operator is an operator of NATS servers, with an account for users.
type Operator struct {
	claims   *jwt.OperatorClaims
	accounts *server.MemAccResolver
	system   string
	account  nkeys.KeyPair
}

// NewOperator returns an operator with an account that has JetStream, and a system account.
func NewOperator(tb testing.TB) *Operator {
	tb.Helper()
	o := &Operator{accounts: &server.MemAccResolver{}}
	operator, name := newKey(tb, nkeys.CreateOperator)
	o.claims = jwt.NewOperatorClaims(name)
	signed, err := o.claims.Encode(operator)
	if err == nil {
		o.claims, err = jwt.DecodeOperatorClaims(signed)
	}
	if err != nil {
		tb.Fatal(err)
	}
	add := func(limits jwt.JetStreamLimits) (key nkeys.KeyPair, name string) {
		key, name = newKey(tb, nkeys.CreateAccount)
		claims := jwt.NewAccountClaims(name)
		claims.Limits.JetStreamLimits = limits
		signed, err := claims.Encode(operator)
		if err == nil {
			err = o.accounts.Store(name, signed)
		}
		if err != nil {
			tb.Fatal(err)
		}
		return key, name
	}
	_, o.system = add(jwt.JetStreamLimits{})
	o.account, _ = add(jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1})
	return o
}

// Credentials writes the file of a new user, which is valid until a time, and returns its name.
func (o *Operator) Credentials(tb testing.TB, until time.Time) string {
	tb.Helper()
	user, name := newKey(tb, nkeys.CreateUser)
	claims := jwt.NewUserClaims(name)
	claims.Expires = until.Unix()
	signed, err := claims.Encode(o.account)
	if err != nil {
		tb.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		tb.Fatal(err)
	}
	text, err := jwt.FormatUserConfig(signed, seed)
	file := filepath.Join(tb.TempDir(), "netsketch.creds")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return file
}

func newKey(tb testing.TB, create func() (nkeys.KeyPair, error)) (key nkeys.KeyPair, name string) {
	tb.Helper()
	key, err := create()
	if err == nil {
		name, err = key.PublicKey()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return key, name
}

// Connect connects to a server; the connection closes with the test.
func Connect(tb testing.TB, cluster, member, address string) *bus.Bus {
	tb.Helper()
	b, err := bus.Connect(tb.Context(), bus.Config{Name: cluster, Member: member, Servers: []string{address}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	if err := b.WaitConnected(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return b
}

// Proxy forwards connections to an address until cut is called, which also closes them. The next
// call of cut forwards new connections again.
func Proxy(tb testing.TB, to string) (address string, cut func()) {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var mu sync.Mutex
	var work sync.WaitGroup
	isCut, open := false, map[net.Conn]bool{}
	closeAll := func() {
		for c := range open {
			_ = c.Close() // both ends are closed
			delete(open, c)
		}
	}
	forward := func(from, to net.Conn) {
		_, _ = io.Copy(to, from) // the copy ends when either end closes
		mu.Lock()
		defer mu.Unlock()
		for _, c := range []net.Conn{from, to} {
			delete(open, c)
			_ = c.Close()
		}
	}
	work.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			mu.Lock()
			if err != nil || isCut {
				_ = in.Close()
				if out != nil {
					_ = out.Close()
				}
			} else {
				open[in], open[out] = true, true
				work.Go(func() { forward(in, out) })
				work.Go(func() { forward(out, in) })
			}
			mu.Unlock()
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		isCut = true
		closeAll()
		mu.Unlock()
		work.Wait()
	})
	return listener.Addr().String(), func() {
		mu.Lock()
		defer mu.Unlock()
		isCut = !isCut
		closeAll()
	}
}

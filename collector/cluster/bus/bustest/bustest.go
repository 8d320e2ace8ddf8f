// SPDX-License-Identifier: Apache-2.0

// Package bustest runs NATS servers for tests.
package bustest

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
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

// Options are what a server expects of its clients and has for them.
type Options struct {
	// TLS secures connections; nil: plaintext.
	TLS *tls.Config
	// Username and Password are those of all clients; empty: there are none.
	Username, Password string
	// Operator has the accounts and users; nil: none.
	Operator *Operator
}

// Server starts a NATS server with JetStream on a random port of the loopback interface, which
// ends with the test, and returns its address. Create buckets and streams in memory.
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

// Connect returns a connection to a server that closes with the test.
func Connect(tb testing.TB, cluster, member, address string) *bus.Bus {
	tb.Helper()
	b, err := bus.Connect(tb.Context(), bus.Config{Name: cluster, Member: member, Servers: []string{address}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	return b
}

// Proxy forwards connections to an address until cut is called, which also closes them. Calling it
// again forwards new connections.
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
		_, _ = io.Copy(to, from) // it ends with either
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

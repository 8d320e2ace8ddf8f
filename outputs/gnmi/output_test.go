// SPDX-License-Identifier: Apache-2.0

package gnmi

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/outputs/access"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/settings/yaml"
	"github.com/netsketch/netsketch/yang"
)

func TestMain(m *testing.M) {
	// ygot imports glog, which starts a goroutine.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

var schema = sync.OnceValue(func() *yang.Schema {
	s, err := yang.Load(yangtest.Modules()...)
	if err != nil {
		panic(err)
	}
	return s
})

var deps = Dependencies{Schema: schema, Certificates: certs.New(certs.Options{}), Logger: slog.New(slog.DiscardHandler)}

// start runs an output with these settings until the test ends.
func start(t *testing.T, c Config) *Output {
	t.Helper()
	st := store.New(store.Options{Schema: schema()})
	o, err := New("gnmi", c, deps)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Start(st); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if s := o.State().Status; s != outputs.Stopped {
			t.Errorf("a stopped output is %s", s)
		}
		st.Close()
	})
	return o
}

func plain() Config {
	c := settings.Default[Config]()
	c.Address, c.TLS.Plaintext = "127.0.0.1:0", true
	return c
}

func capabilities(t *testing.T, addr string, creds credentials.TransportCredentials, md ...string) error {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), md...), time.Minute)
	defer cancel()
	_, err = gpb.NewGNMIClient(conn).Capabilities(ctx, &gpb.CapabilityRequest{})
	return err
}

func TestPlaintextOnlyWhereConfigured(t *testing.T) {
	o := start(t, plain())
	if err := capabilities(t, o.Address(), insecure.NewCredentials()); err != nil {
		t.Error(err)
	}
	if s := o.State(); s.Status != outputs.Up {
		t.Errorf("state %+v", s)
	}
	c := settings.Default[Config]()
	if _, err := New("gnmi", c, deps); err == nil || !strings.Contains(err.Error(), "plaintext: true") {
		t.Errorf("neither TLS nor plaintext: %v", err)
	}
}

func TestTLS(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	dir, later := t.TempDir(), time.Now().AddDate(1, 0, 0)
	c := plain()
	c.TLS.Plaintext = false
	c.TLS.CertFile, c.TLS.KeyFile = ca.Issue(t, dir, "server", later)
	trusting := credentials.NewTLS(&tls.Config{RootCAs: ca.Pool()})

	o := start(t, c)
	if err := capabilities(t, o.Address(), trusting); err != nil {
		t.Error("a client that trusts the authority:", err)
	}
	if err := capabilities(t, o.Address(), insecure.NewCredentials()); err == nil {
		t.Error("plaintext is taken on a TLS port")
	}

	c.TLS.ClientCAFile = ca.Write(t, dir, "ca.pem")
	mutual := start(t, c)
	if err := capabilities(t, mutual.Address(), trusting); err == nil {
		t.Error("a client without certificate is taken")
	}
	with := credentials.NewTLS(&tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pairOf(t, ca, "client")}})
	if err := capabilities(t, mutual.Address(), with); err != nil {
		t.Error("a client with certificate:", err)
	}
}

// pairOf issues a client certificate.
func pairOf(t *testing.T, ca *testkit.Authority, name string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(ca.Issue(t, t.TempDir(), name, time.Now().AddDate(1, 0, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// Server certificate and client authority are replaced while the server runs. Open connections
// stay open.
func TestCertificatesRotate(t *testing.T) {
	first, second := testkit.NewAuthority(t, "first"), testkit.NewAuthority(t, "second")
	dir, later := t.TempDir(), time.Now().AddDate(1, 0, 0)
	c := plain()
	c.TLS.Plaintext = false
	c.TLS.CertFile, c.TLS.KeyFile = first.Issue(t, dir, "server", later)
	c.TLS.ClientCAFile = first.Write(t, dir, "ca.pem")
	o := start(t, c)
	client := func(a *testkit.Authority) credentials.TransportCredentials {
		return credentials.NewTLS(&tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{pairOf(t, a, "client")}})
	}
	conn, err := grpc.NewClient(o.Address(), grpc.WithTransportCredentials(client(first)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call := func() error {
		_, err := gpb.NewGNMIClient(conn).Capabilities(t.Context(), &gpb.CapabilityRequest{})
		return err
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	second.Issue(t, dir, "server", later)
	second.Write(t, dir, "ca.pem")
	o.deps.Certificates.Reload()
	if err := capabilities(t, o.Address(), client(second)); err != nil {
		t.Errorf("after the rotation: %v", err)
	}
	if err := capabilities(t, o.Address(), client(first)); err == nil {
		t.Error("the previous authority is accepted after the rotation")
	}
	if err := call(); err != nil {
		t.Errorf("an open connection after the rotation: %v", err)
	}
}

func TestCredentials(t *testing.T) {
	c := plain()
	c.Username, c.Password = "ops", settings.Secret("s3cret")
	o := start(t, c)
	for _, tc := range []struct {
		md   []string
		want codes.Code
	}{
		{nil, codes.Unauthenticated},
		{[]string{"username", "ops", "password", "wrong"}, codes.Unauthenticated},
		{[]string{"username", "ops", "password", "s3cret", "password", "s3cret"}, codes.Unauthenticated},
		{[]string{"username", "ops", "password", "s3cret"}, codes.OK},
	} {
		if err := capabilities(t, o.Address(), insecure.NewCredentials(), tc.md...); status.Code(err) != tc.want {
			t.Errorf("%v: %v", tc.md, err)
		}
	}
}

// Users log in with a password, or by the name of their certificate. Each user reads only the
// permitted paths.
func TestUsers(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	c := plain()
	dir := t.TempDir()
	c.TLS.Plaintext = false
	c.TLS.CertFile, c.TLS.KeyFile = ca.Issue(t, dir, "server", time.Now().AddDate(1, 0, 0))
	c.TLS.ClientCAFile = ca.Write(t, dir, "ca.pem")
	c.Username, c.Password = "ops", settings.Secret("s3cret")
	c.Users = []access.User{
		{Name: "tenant", Password: "t3nant", Paths: []string{"/netsketch-univmon:univmon/node-summaries"}},
		{Name: "grafana", Paths: []string{"/univmon", "/collector"}},
	}
	o := start(t, c)
	get := func(certificate, path string, md ...string) error {
		t.Helper()
		creds := credentials.NewTLS(&tls.Config{RootCAs: ca.Pool(),
			Certificates: []tls.Certificate{pairOf(t, ca, certificate)}})
		conn, err := grpc.NewClient(o.Address(), grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		p, err := yang.ParsePath(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = gpb.NewGNMIClient(conn).Get(metadata.AppendToOutgoingContext(t.Context(), md...),
			&gpb.GetRequest{Path: []*gpb.Path{p}})
		return err
	}
	ops := []string{"username", "ops", "password", "s3cret"}
	tenant := []string{"username", "tenant", "password", "t3nant"}
	for _, tc := range []struct {
		certificate, path string
		md                []string
		want              codes.Code // NotFound means that the path is permitted and the store is empty
	}{
		{"any", "/univmon", ops, codes.NotFound},
		{"any", "/univmon/node-summaries", tenant, codes.NotFound},
		{"any", "/univmon", tenant, codes.PermissionDenied},
		{"grafana", "/univmon", nil, codes.NotFound},
		{"grafana", "/interfaces", nil, codes.PermissionDenied},
		{"grafana", "/interfaces", ops, codes.NotFound}, // the login takes precedence over the certificate
		{"any", "/univmon", nil, codes.Unauthenticated},
		{"tenant", "/univmon/node-summaries", nil, codes.Unauthenticated}, // a user with a password must send it
		{"any", "/univmon", []string{"username", "grafana", "password", ""}, codes.Unauthenticated},
		{"grafana", "/univmon", []string{"username", "ops", "password", "wrong"}, codes.Unauthenticated},
		{"grafana", "/univmon", []string{"username", "ops"}, codes.Unauthenticated},
	} {
		if err := get(tc.certificate, tc.path, tc.md...); status.Code(err) != tc.want {
			t.Errorf("certificate %s, metadata %v, path %s: %v; expected %s", tc.certificate, tc.md, tc.path, err, tc.want)
		}
	}
	if st := o.State().Clients; st.LoginsRefused != 5 || st.PathsRefused != 2 {
		t.Errorf("state %+v", st)
	}
}

// Without configured users, the bounds per user count by the name of the certificate.
func TestBoundPerCertificate(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	c := plain()
	dir := t.TempDir()
	c.TLS.Plaintext = false
	c.TLS.CertFile, c.TLS.KeyFile = ca.Issue(t, dir, "server", time.Now().AddDate(1, 0, 0))
	c.TLS.ClientCAFile = ca.Write(t, dir, "ca.pem")
	c.MaxStreamsPerUser = 1
	o := start(t, c)
	open := func(certificate string) error {
		t.Helper()
		creds := credentials.NewTLS(&tls.Config{RootCAs: ca.Pool(),
			Certificates: []tls.Certificate{pairOf(t, ca, certificate)}})
		conn, err := grpc.NewClient(o.Address(), grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		stream, err := gpb.NewGNMIClient(conn).Subscribe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{
			Subscribe: &gpb.SubscriptionList{Subscription: []*gpb.Subscription{{Path: &gpb.Path{}}}}}}); err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		return err
	}
	if err := open("a"); err != nil {
		t.Errorf("the first stream of a: %v", err)
	}
	if err := open("a"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "user a") {
		t.Errorf("the second stream of a: %v", err)
	}
	if err := open("b"); err != nil {
		t.Errorf("the first stream of b: %v", err)
	}
}

// The other gRPC services on the port require the same login.
func TestHealthAndReflection(t *testing.T) {
	c := plain()
	c.Username, c.Password = "ops", settings.Secret("s3cret")
	o := start(t, c)
	conn, err := grpc.NewClient(o.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	authorized := metadata.AppendToOutgoingContext(ctx, "username", "ops", "password", "s3cret")

	checks := healthpb.NewHealthClient(conn)
	for _, service := range []string{"", "gnmi.gNMI"} {
		resp, err := checks.Check(authorized, &healthpb.HealthCheckRequest{Service: service})
		if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("service %q: %v, %v", service, resp, err)
		}
	}
	if _, err := checks.Check(ctx, &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a check without credentials: %v", err)
	}

	list := func(ctx context.Context) ([]string, error) {
		stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
		if err != nil {
			return nil, err
		}
		request := &reflectionpb.ServerReflectionRequest_ListServices{}
		if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: request}); err != nil &&
			!errors.Is(err, io.EOF) {
			return nil, err
		}
		resp, err := stream.Recv()
		var names []string
		for _, s := range resp.GetListServicesResponse().GetService() {
			names = append(names, s.GetName())
		}
		return names, errors.Join(err, stream.CloseSend())
	}
	names, err := list(authorized)
	if err != nil || !slices.Contains(names, "gnmi.gNMI") || !slices.Contains(names, "grpc.health.v1.Health") {
		t.Errorf("services %v, %v", names, err)
	}
	if _, err := list(ctx); status.Code(err) != codes.Unauthenticated {
		t.Errorf("reflection without credentials: %v", err)
	}
}

// A client that watches health receives NOT_SERVING when the output stops, and does not delay the
// stop until stop-timeout.
func TestStopsWithAHealthWatcher(t *testing.T) {
	c := plain()
	c.StopTimeout = time.Minute
	o, err := New("gnmi", c, deps)
	if err != nil {
		t.Fatal(err)
	}
	st := store.New(store.Options{Schema: schema()})
	defer st.Close()
	if err := o.Start(st); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	conn, err := grpc.NewClient(o.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := watch.Recv(); err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", resp, err)
	}
	stop()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the output waits for its health watcher")
	}
}

func TestAddressTaken(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	st := store.New(store.Options{})
	defer st.Close()
	c := plain()
	c.Address = lis.Addr().String()
	o, err := New("gnmi", c, deps)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Start(st); err == nil || !strings.Contains(err.Error(), "gNMI address "+c.Address+" is in use") {
		t.Errorf("starting on a taken address: %v", err)
	}
}

// An output that is stopped before it begins to serve ends without an error.
func TestEndsBeforeItServes(t *testing.T) {
	st := store.New(store.Options{})
	defer st.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // the scheduler decides the order
		o, err := New("gnmi", plain(), deps)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Start(st); err != nil {
			t.Fatal(err)
		}
		if err := o.Run(ended); err != nil {
			t.Errorf("ending before serving: %v", err)
		}
	}
}

func TestStopsWithOpenStreams(t *testing.T) {
	c := plain()
	c.StopTimeout = time.Minute
	o := start(t, c)
	conn, err := grpc.NewClient(o.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := gpb.NewGNMIClient(conn).Subscribe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: &gpb.SubscriptionList{
		Subscription: []*gpb.Subscription{{Path: &gpb.Path{}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if n := o.Stats().Streams; n != 1 {
		t.Errorf("%d streams", n)
	}
	o.stop()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("an open stream ended with %v", err)
	}
}

// Silent clients occupy at most max-connections connections. A further connection is refused and
// counted; when a connection closes, another one is accepted.
func TestConnectionsAreBounded(t *testing.T) {
	c := plain()
	c.MaxConnections = 2
	o := start(t, c)
	silent := make([]net.Conn, c.MaxConnections)
	for i := range silent {
		var err error
		if silent[i], err = net.Dial("tcp", o.Address()); err != nil {
			t.Fatal(err)
		}
		defer silent[i].Close()
	}
	refused, err := net.Dial("tcp", o.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	if n, err := refused.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("one more connection: %d bytes, %v", n, err)
	}
	testkit.Until(t, "the refusal is counted", func() bool {
		st := o.State().Clients
		return st.Connections == 2 && st.ConnectionsRefused == 1
	})
	silent[0].Close()
	for limit := time.Now().Add(time.Minute); ; { // until the server has noticed the end of the connection
		err := capabilities(t, o.Address(), insecure.NewCredentials())
		if err == nil {
			break
		} else if time.Now().After(limit) {
			t.Fatalf("when there is room: %v", err)
		}
	}
}

// One client address can occupy only its share of the connections.
func TestConnectionsPerClient(t *testing.T) {
	c := plain()
	c.MaxConnectionsPerClient = 1
	o := start(t, c)
	idle, err := net.Dial("tcp", o.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	testkit.Until(t, "the connection is open", func() bool { return o.State().Clients.Connections == 1 })
	refused, err := net.Dial("tcp", o.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	if n, err := refused.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("one more connection of the address: %d bytes, %v", n, err)
	}
	elsewhere := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := grpc.NewClient("passthrough:"+o.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return elsewhere.DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := gpb.NewGNMIClient(conn).Capabilities(t.Context(), &gpb.CapabilityRequest{}); err != nil {
		t.Errorf("a client at another address: %v", err)
	}
}

func TestConfigErrorsNameTheKey(t *testing.T) {
	for key, text := range map[string]string{
		"address":         `{tls: {plaintext: true}, address: "9339"}`,
		"tls.plaintext":   `{tls: {plaintext: true, cert-file: x}}`,
		"tls.cert-file":   `{}`,
		"tls.key-file":    `{tls: {cert-file: x}}`,
		"username":        `{tls: {plaintext: true}, username: x}`,
		"sample-interval": `{tls: {plaintext: true}, sample-interval: 0s}`,
		"max-streams":     `{tls: {plaintext: true}, max-streams: 0}`,
		"max-connections": `{tls: {plaintext: true}, max-connections: 0}`,
		"max-paths":       `{tls: {plaintext: true}, max-paths: -1}`,
		"users[0].name":   `{tls: {plaintext: true}, users: [{password: x}]}`,
		"users[1].name": `{tls: {plaintext: true}, username: a, password: x, users: [{name: b, password: x},` +
			` {name: a, password: x}]}`,
		"users[0].password":     `{tls: {plaintext: true}, users: [{name: a}]}`,
		"users[0].paths[1]":     `{tls: {plaintext: true}, users: [{name: a, password: x, paths: [/a, /a/*]}]}`,
		"first-message-timeout": `{tls: {plaintext: true}, first-message-timeout: 0s}`,
		"poll-idle-timeout":     `{tls: {plaintext: true}, poll-idle-timeout: 1ms}`,
		"max-get-leaves":        `{tls: {plaintext: true}, max-get-leaves: 0}`,
		"stop-timeout":          `{tls: {plaintext: true}, stop-timeout: -1s}`,
	} {
		section, err := yaml.Section("gnmi.yaml", text)
		if err != nil {
			t.Fatal(err)
		}
		var problems settings.Problems
		if err := section.Decode(new(Config)); !errors.As(err, &problems) || len(problems) != 1 ||
			problems[0].Path != key {
			t.Errorf("%s: %v", key, err)
		}
	}
	c := plain()
	c.TLS = access.TLS{CertFile: "/nowhere/cert.pem", KeyFile: "/nowhere/key.pem"}
	if _, err := New("gnmi", c, deps); err == nil || !strings.Contains(err.Error(), "/nowhere/cert.pem") {
		t.Errorf("a certificate that is not there: %v", err)
	}
	c.TLS = access.TLS{Plaintext: true}
	c.Atomic = []string{"/nowhere"}
	o, err := New("gnmi", c, deps)
	if err != nil {
		t.Fatal(err)
	}
	st := store.New(store.Options{})
	defer st.Close()
	if err := o.Start(st); err == nil || !strings.Contains(err.Error(), `"nowhere"`) {
		t.Errorf("an atomic container that is not there: %v", err)
	}
}

// TestCompression: a client may compress its requests with gzip, as gnmic does with --gzip. The
// test itself must not import the compressor.
func TestCompression(t *testing.T) {
	if encoding.GetCompressor("gzip") == nil {
		t.Fatal("the server links no compressor for gzip")
	}
	o := start(t, plain())
	conn, err := grpc.NewClient(o.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.UseCompressor("gzip")))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := gpb.NewGNMIClient(conn).Capabilities(t.Context(), &gpb.CapabilityRequest{}); err != nil {
		t.Error(err)
	}
}

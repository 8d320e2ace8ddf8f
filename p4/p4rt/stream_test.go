// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// frame is an Ethernet frame with a source address that ends in n.
func frame(n byte) []byte {
	f := make([]byte, 64)
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, n, 0x12, 0x34})
	return f
}

// next takes the next value of a queue.
func next[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-c:
		if !ok {
			t.Fatal("the queue is closed")
		}
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func TestObligation16Digests(t *testing.T) {
	s, c := ready(t, entities(t))
	learn := p4rt.Entry{Table: "ternary_t", Priority: 1, Action: "learn"}
	if err := c.Desire(t.Context(), "learning", p4rt.Desired{Entries: []p4rt.Entry{learn}}); err != nil {
		t.Fatal(err)
	}
	cfg := p4rt.DigestConfig{MaxTimeout: time.Millisecond, MaxSize: 2, AckTimeout: time.Hour}
	q, err := c.Digests(t.Context(), "learned_t", cfg, 8)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // the same message is held back until it is acknowledged
		s.sw.Inject(1, frame(7), 0)
	}
	list := next(t, q.C)
	if len(list.Data) != 1 || list.Digest.Name != "learned_t" {
		t.Fatalf("%+v", list)
	}
	members := list.Data[0].GetStruct().GetMembers()
	if got := members[0].GetBitstring(); len(members) != 2 || !p4values.Equal(got, []byte{2, 0, 0, 0, 0, 7}) || !p4values.IsCanonical(members[1].GetBitstring()) {
		t.Errorf("members %v", members)
	}
	if err := list.Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The switch takes the acknowledgement in its own time; a packet-out behind it on the stream tells when it has.
	barrier(t, s, c)
	s.sw.Inject(1, frame(7), 0)
	if again := next(t, q.C); again.ID == list.ID || len(again.Data) != 1 {
		t.Errorf("%+v", again)
	}
	acks := 0
	for _, m := range seen[*p4v1.StreamMessageRequest](s.meddler) {
		if a := m.GetDigestAck(); a != nil {
			acks++
			if a.GetListId() != list.ID || a.GetDigestId() != list.Digest.ID {
				t.Errorf("acknowledged %v", a)
			}
		}
	}
	if acks != 1 {
		t.Errorf("%d acknowledgements", acks)
	}
	if _, err := c.Digests(t.Context(), "nope", cfg, 1); err == nil || !strings.Contains(err.Error(), "learned_t") {
		t.Errorf("an unknown digest: %v", err)
	}
}

// barrier returns when the switch has handled all that was sent on the stream before: a packet-out to the CPU port came back.
func barrier(t testing.TB, s *testSwitch, c *p4rt.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q := c.PacketIns(ctx, 1, func(p *p4rt.PacketIn) bool { return bytes.Equal(p.Payload, frame(0xfe)) })
	if err := c.PacketOut(ctx, frame(0xfe), p4rt.MetadataValue{Name: "egress_port", Value: []byte{255}}, p4rt.MetadataValue{Name: "padding", Value: []byte{0}}); err != nil {
		t.Fatal(err)
	}
	next(t, q.C)
}

func TestObligation17Packets(t *testing.T) {
	s, c := ready(t, entities(t))
	q := c.PacketIns(t.Context(), 2, nil)
	only := c.PacketIns(t.Context(), 2, func(p *p4rt.PacketIn) bool { return p.Payload[11] == 9 })
	meta := func(port uint64) []p4rt.MetadataValue {
		return []p4rt.MetadataValue{{Name: "padding", Value: []byte{0}}, {Name: "egress_port", Value: p4values.Uint(port)}}
	}
	if err := c.PacketOut(t.Context(), frame(9), meta(255)...); err != nil {
		t.Fatal(err)
	}
	for _, q := range []*p4rt.Queue[*p4rt.PacketIn]{q, only} {
		p := next(t, q.C)
		if port, ok := p.Uint("ingress_port"); !ok || port != 255 || string(p.Payload) != string(frame(9)) {
			t.Errorf("packet from port %d: %x", port, p.Payload)
		}
		if _, ok := p.Value("nope"); ok {
			t.Error("metadata out of nothing")
		}
	}
	for _, m := range seen[*p4v1.StreamMessageRequest](s.meddler) {
		if p := m.GetPacket(); p != nil && len(p.GetMetadata()) != 2 {
			t.Errorf("metadata %v", p.GetMetadata())
		}
	}
	for name, tc := range map[string]struct {
		meta []p4rt.MetadataValue
		want string
	}{
		"missing": {meta(1)[:1], `"egress_port" is missing`},
		"unknown": {append(meta(1), p4rt.MetadataValue{Name: "nope", Value: []byte{0}}), `no metadata "nope"`},
		"twice":   {append(meta(1), meta(1)...), "given twice"},
		"range":   {meta(512), "out of range"},
	} {
		if err := c.PacketOut(t.Context(), frame(1), tc.meta...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Nobody reads the queues: packets are dropped and counted, and the stream goes on, as the arbitration behind them shows.
	const flood = 100
	for range flood {
		if err := c.PacketOut(t.Context(), frame(9), meta(255)...); err != nil {
			t.Fatal(err)
		}
	}
	barrier(t, s, c) // q has no room for it either, and only does not want it
	other := dial(t, p4rt.Config{Target: s.addr, DeviceID: 1, ElectionID: p4rt.ElectionID{Low: 9}})
	waitState(t, c, p4rt.Standby)
	waitReady(t, other)
	st := c.Stats()
	if q.Dropped() != flood-2+1 || q.Dropped() != only.Dropped()+1 || st.PacketsDropped != q.Dropped()+only.Dropped() || st.PacketIns != 1+q.Dropped()+2 {
		t.Errorf("dropped %d and %d, counted %+v", q.Dropped(), only.Dropped(), st)
	}
}

func TestIdleTimeouts(t *testing.T) {
	s, c := ready(t, entities(t))
	q := c.IdleTimeouts(t.Context(), 4)
	e := p4rt.Entry{Table: "idle_t", Match: []p4rt.Match{p4rt.Exact("sm.ingress_port", []byte{1})}, Action: "NoAction", IdleTimeout: time.Millisecond, Metadata: []byte("mine")}
	if err := c.Desire(t.Context(), "idle", p4rt.Desired{Entries: []p4rt.Entry{e}}); err != nil {
		t.Fatal(err)
	}
	n := next(t, q.C)
	if len(n.Entries) != 1 || string(n.Entries[0].GetMetadata()) != "mine" || n.Entries[0].GetIdleTimeoutNs() != time.Millisecond.Nanoseconds() || len(n.Entries[0].GetMatch()) != 1 {
		t.Errorf("%+v", n.Entries)
	}
	_ = s
}

// Every unary call has a deadline: a switch that hangs in it does not hang the client.
func TestObligation18Deadlines(t *testing.T) {
	cfg := func(s *testSwitch) p4rt.Config {
		c := config(s, program(t, "forwarding"))
		c.CallTimeout, c.PipelineTimeout, c.ReadTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
		return c
	}
	for name, meddle := range map[string]func(*meddler){
		"Capabilities": func(m *meddler) {
			m.capabilities = func(ctx context.Context) (*p4v1.CapabilitiesResponse, error) { return nil, hang(ctx) }
		},
		"GetForwardingPipelineConfig": func(m *meddler) {
			m.get = func(ctx context.Context) (*p4v1.GetForwardingPipelineConfigResponse, error) { return nil, hang(ctx) }
		},
		"SetForwardingPipelineConfig": func(m *meddler) {
			m.set = func(ctx context.Context, _ *p4v1.SetForwardingPipelineConfigRequest) (*p4v1.SetForwardingPipelineConfigResponse, error) {
				return nil, hang(ctx)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSwitch(t)
			s.meddle(meddle)
			c := dial(t, cfg(s))
			if st := waitState(t, c, p4rt.Down); status.Code(st.Reason) != codes.DeadlineExceeded {
				t.Errorf("reason %v", st.Reason)
			}
		})
	}
	t.Run("arbitration", func(t *testing.T) {
		s := startSwitch(t)
		s.meddle(func(m *meddler) {
			m.down = func(*p4v1.StreamMessageResponse) *p4v1.StreamMessageResponse { return nil }
		})
		c := dial(t, cfg(s))
		if st := waitState(t, c, p4rt.Down); !strings.Contains(st.Reason.Error(), "did not answer the bid") {
			t.Errorf("reason %v", st.Reason)
		}
	})
	t.Run("Write", func(t *testing.T) {
		s := startSwitch(t)
		c := dial(t, cfg(s))
		waitReady(t, c)
		s.meddle(func(m *meddler) {
			m.write = func(ctx context.Context, _ *p4v1.WriteRequest) (*p4v1.WriteResponse, error) { return nil, hang(ctx) }
		})
		if err := c.Write(t.Context(), insertRoute(t, c, "10.0.0.0/8")); status.Code(errors.Unwrap(err)) != codes.DeadlineExceeded && !strings.Contains(err.Error(), "DeadlineExceeded") {
			t.Errorf("got %v", err)
		}
	})
}

func TestObligation18TLS(t *testing.T) {
	ca, caKey := certificate(t, nil, nil, "ca")
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	leaf := func(name string) tls.Certificate {
		cert, key := certificate(t, ca, caKey, name)
		return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
	}
	server := &tls.Config{Certificates: []tls.Certificate{leaf("switch")}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
	s := startSwitch(t, grpc.Creds(credentials.NewTLS(server)))
	for name, tc := range map[string]struct {
		tls *tls.Config
		ok  bool
	}{
		"mutual":         {&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{leaf("collector")}}, true},
		"no certificate": {&tls.Config{RootCAs: pool}, false},
		"unknown switch": {&tls.Config{Certificates: []tls.Certificate{leaf("collector")}}, false},
		"plaintext":      {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(s, program(t, "forwarding"))
			cfg.TLS, cfg.CallTimeout = tc.tls, 2*time.Second
			c := dial(t, cfg)
			defer c.Close()
			if tc.ok {
				waitReady(t, c)
				return
			}
			if st := waitState(t, c, p4rt.Down); st.Reason == nil || !strings.Contains(st.Reason.Error(), s.addr) {
				t.Errorf("reason %v", st.Reason)
			}
		})
	}
}

// certificate makes a certificate for 127.0.0.1, signed by the parent or, without one, by itself.
func certificate(t testing.TB, parent *x509.Certificate, parentKey *ecdsa.PrivateKey, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: parent == nil, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func TestClosedClient(t *testing.T) {
	s, c := ready(t, program(t, "forwarding"))
	q := c.PacketIns(t.Context(), 1, nil)
	w := c.Watch(t.Context())
	c.Close()
	c.Close()
	if _, open := <-q.C; open {
		t.Error("a queue is open after Close")
	}
	for st := range w {
		_ = st
	}
	if st := c.Status(); st.State != p4rt.Closed {
		t.Errorf("state %v", st.State)
	}
	if err := c.Write(t.Context()); !errors.Is(err, p4rt.ErrClosed) {
		t.Errorf("a write after Close: %v", err)
	}
	if err := c.WaitReady(t.Context()); !errors.Is(err, p4rt.ErrClosed) {
		t.Errorf("waiting after Close: %v", err)
	}
	_ = s
}

// A port on which something else listens, and one on which nothing does.
func TestNotASwitch(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.0 400 what do you want\r\n\r\n"))
			conn.Close()
		}
	}()
	defer func() {
		l.Close()
		<-done
	}()
	for _, addr := range []string{l.Addr().String(), freePort(t)} {
		c := dial(t, p4rt.Config{Target: addr, DeviceID: 1, CallTimeout: time.Second})
		if st := waitState(t, c, p4rt.Down); !strings.Contains(st.Reason.Error(), addr) {
			t.Errorf("reason %v", st.Reason)
		}
		c.Close()
	}
}

// freePort returns a loopback address that nobody listens on.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
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

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// frame is an Ethernet frame with a source address that ends in n.
func frame(n byte) []byte {
	f := make([]byte, 64)
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, n, 0x12, 0x34})
	return f
}

// Packets that are not read-out replies are dropped and counted. The stream continues, as a later
// arbitration shows.
func TestObligation17Packets(t *testing.T) {
	s, c := ready(t, entities(t))
	const flood = 100
	for range flood {
		if err := s.sw.PacketOut(append([]byte{0x7f, 0x80}, frame(9)...)); err != nil { // to the CPU port, 255
			t.Fatal(err)
		}
	}
	testkit.Until(t, "all packets are received", func() bool { return c.Stats().PacketIns == flood })
	other := dial(t, p4rt.Config{Target: s.addr, DeviceID: 1, ElectionID: p4rt.ElectionID{Low: 9}})
	waitState(t, c, p4rt.Standby)
	waitReady(t, other)
	if st := c.Stats(); st.PacketsDropped != flood {
		t.Errorf("counted %+v", st)
	}
}

// Every unary call has a deadline, so that a switch that never replies does not block the client.
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
			m.get = func(ctx context.Context) (*p4v1.GetForwardingPipelineConfigResponse, error) {
				return nil,
					hang(ctx)
			}
		},
		"SetForwardingPipelineConfig": func(m *meddler) {
			m.set = func(ctx context.Context, _ *p4v1.SetForwardingPipelineConfigRequest) (
				*p4v1.SetForwardingPipelineConfigResponse, error,
			) {
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
		// the connection itself may time out first
		waitStatus(t, c, "down without an answer", func(st p4rt.Status) bool {
			return st.State == p4rt.Down && strings.Contains(st.Reason.Error(), "did not answer the bid")
		})
	})
	t.Run("Write", func(t *testing.T) {
		s := startSwitch(t)
		c := dial(t, cfg(s))
		waitReady(t, c)
		s.meddle(func(m *meddler) {
			m.write = func(ctx context.Context, _ *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
				return nil,
					hang(ctx)
			}
		})
		if err := c.Write(t.Context(), insertRoute(t,
			"10.0.0.0/8")); status.Code(errors.Unwrap(err)) != codes.DeadlineExceeded &&
			!strings.Contains(err.Error(), "DeadlineExceeded") {
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
	server := &tls.Config{Certificates: []tls.Certificate{leaf("switch")}, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
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
func certificate(t testing.TB, parent *x509.Certificate, parentKey *ecdsa.PrivateKey,
	name string,
) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: parent == nil,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
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
	w := c.Watch(t.Context())
	c.Close()
	c.Close()
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

// One port has a server that is not a switch, the other has no server.
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

// freePort returns an unused loopback address.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

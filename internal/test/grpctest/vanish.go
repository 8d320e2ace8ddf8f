// SPDX-License-Identifier: Apache-2.0

package grpctest

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// Vanishing forwards TCP connections to an address until vanish is called. From then on Vanishing
// neither forwards data nor closes connections, as if the server had vanished without a FIN.
func Vanishing(tb testing.TB, to string) (address string, vanish func()) {
	tb.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var mu sync.Mutex
	gone := false
	var open []net.Conn
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				conn.Close()
				continue
			}
			mu.Lock()
			open = append(open, conn, server)
			mu.Unlock()
			work.Go(func() { pipe(conn, server, &mu, &gone) })
			work.Go(func() { pipe(server, conn, &mu, &gone) })
		}
	})
	tb.Cleanup(func() {
		lis.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		work.Wait()
	})
	return lis.Addr().String(), func() {
		mu.Lock()
		gone = true
		mu.Unlock()
	}
}

// pipe forwards bytes until a connection ends; while gone is set, it drops them.
func pipe(from, to net.Conn, mu *sync.Mutex, gone *bool) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		mu.Lock()
		silent := *gone
		mu.Unlock()
		switch {
		case err != nil:
			if !silent {
				to.Close()
			}
			return
		case silent:
		default:
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

// BehindProxy runs the calling test again in a second process, whose environment names an HTTP
// proxy, because a process reads this variable once. It returns false in the second process. In the
// first process it returns true after the second one has passed without a connection to the proxy.
func BehindProxy(t *testing.T) bool {
	t.Helper()
	if os.Getenv("GRPCTEST_PROXY") != "" {
		return false
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	used := make(chan struct{}, 1)
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			conn.Close()
			select {
			case used <- struct{}{}:
			default:
			}
		}
	}()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	proxy := "http://" + lis.Addr().String()
	for _, v := range os.Environ() {
		if !strings.HasPrefix(strings.ToUpper(v), "NO_PROXY=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "GRPCTEST_PROXY=1", "HTTPS_PROXY="+proxy, "https_proxy="+proxy)
	out, err := cmd.CombinedOutput()
	lis.Close()
	<-accepting
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	select {
	case <-used:
		t.Error("the connection went through the proxy of the environment")
	default:
	}
	return true
}

// SPDX-License-Identifier: Apache-2.0

// Clients and servers that send garbage.

package faults

import (
	"crypto/rand"
	"io"
	"net"
	"sync"
	"time"
)

// prefaces begin connections: nothing, HTTP/2, HTTP/1, TLS.
var prefaces = []string{"", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\xff\xff\xff\x01\x05\x00\x00\x00\x01",
	"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"}

// garbage opens connections to an address and writes garbage to each; it returns their number.
func (t *trial) garbage(address string) int {
	t.Helper()
	const each = 40
	var work sync.WaitGroup
	for i := range each * len(prefaces) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			defer c.Close()
			if c.SetDeadline(time.Now().Add(5*time.Second)) != nil {
				return
			}
			// The server may close the connection at any time.
			_, _ = io.WriteString(c, prefaces[i%len(prefaces)])
			_, _ = io.CopyN(c, rand.Reader, 64<<10)
		})
	}
	work.Wait()
	return each * len(prefaces)
}

// answerGarbage accepts connections on an address and answers each with garbage, until stop.
func (t *trial) answerGarbage(address string) (stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				if c.SetDeadline(time.Now().Add(5*time.Second)) == nil {
					_, _ = io.CopyN(c, rand.Reader, 1<<20) // the client may be gone
				}
			})
		}
	})
	return func() {
		l.Close()
		work.Wait()
	}
}

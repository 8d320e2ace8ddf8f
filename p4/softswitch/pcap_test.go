// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCaptureThroughSwitch(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.pcap", "a.pcap.gz"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			in, out := filepath.Join(dir, "in-"+name), filepath.Join(dir, "out-"+name)
			w, err := CreateCapture(in, time.Unix(1000, 0))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 10 {
				w.Tx(request{key: uint16(i)}.bytes(), time.Duration(i)*time.Millisecond)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			b := newBench(t, Config{})
			tx, err := CreateCapture(out, time.Unix(0, 0))
			if err != nil {
				t.Fatal(err)
			}
			b.check(b.RemovePort(1))
			b.check(b.AddPort(1, Port{Tx: tx.Tx}))
			r, err := OpenCapture(in)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			n, err := b.Replay(context.Background(), 0, r, time.Second)
			if n != 10 || err != nil {
				t.Fatalf("%d packets, %v", n, err)
			}
			if err := tx.Close(); err != nil {
				t.Fatal(err)
			}
			back, err := OpenCapture(out)
			if err != nil {
				t.Fatal(err)
			}
			defer back.Close()
			for i := 0; ; i++ {
				pkt, at, err := back.Next()
				if errors.Is(err, io.EOF) {
					if i != 10 {
						t.Errorf("%d packets came out", i)
					}
					break
				}
				if err != nil || int(pkt[3]) != i || at != time.Duration(i)*time.Millisecond || b.answer(sent{pkt: pkt}).inTS != uint64(1e6+1000*i) {
					t.Errorf("packet %d at %v: %v", i, at, err)
				}
			}
		})
	}
}

func TestDamagedCaptures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.pcap")
	w, err := CreateCapture(whole, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.Tx(make([]byte, 100), 0)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		data []byte
		want string
		eof  bool
	}{
		{nil, "it has no header", true},
		{[]byte("hello, I am no capture at all, far from it"), "neither pcap nor pcapng", false},
		{data[:20], "neither pcap nor pcapng", true},
		{data[:24+2*116+50], "is cut off in packet 3", true},
		{data[:24+116+7], "is cut off in packet 2", true},
	} {
		name := filepath.Join(dir, fmt.Sprintf("%d.pcap", i))
		if err := os.WriteFile(name, tt.data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := OpenCapture(name)
		if err == nil {
			for err == nil {
				_, _, err = r.Next()
			}
			r.Close()
		}
		if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), name) || errors.Is(err, io.ErrUnexpectedEOF) != tt.eof {
			t.Errorf("%d: %v; want %q", i, err, tt.want)
		}
	}
	if _, err := OpenCapture(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

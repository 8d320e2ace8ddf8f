// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	good := write("good", "# sizes\n1 0.5\n10 0.9\n1000 1\n")
	var traces [2]*Trace
	for i := range traces {
		var err error
		if traces[i], err = Load("cdf:"+good, 100_000, 3); err != nil {
			t.Fatal(err)
		}
		if n := len(traces[i].Flows()); traces[i].Len() != 100_000 || n < 1000 {
			t.Errorf("%d packets, %d flows", traces[i].Len(), n)
		}
	}
	if !bytes.Equal(traces[0].Keys(), traces[1].Keys()) {
		t.Error("the same seed gives other packets")
	}
	for _, spec := range []string{
		"", "zipf", "zipf:x", "zipf:-1", "zipf:NaN", "cdf:", "cdf:" + dir, "cdf:" + write("a", "5 0.5\n4 1\n"),
		"cdf:" + write("b", "5 0.5\n"), "cdf:" + write("c", "x y\n"),
		"cdf:" + write("d", "0 1\n"), "cdf:" + write("e", "NaN 1\n"), "pcap:" + good, "records:" + good,
		"records:" + write("f", ""), "other:1",
	} {
		if _, err := Load(spec, 1000, 1); err == nil {
			t.Errorf("%q: no error", spec)
		}
	}
	if _, err := Load("zipf:1", 0, 1); err == nil {
		t.Error("no packets, no error")
	}
}

func TestReadRecords(t *testing.T) {
	var b []byte
	for i := range 10 {
		b = append(b, "thirteenbytes"...)
		b = binary.LittleEndian.AppendUint64(b, uint64(1000+i))
	}
	tr, err := ReadRecords("x", bytes.NewReader(b))
	if err != nil || tr.Len() != 10 || len(tr.Flows()) != 1 || tr.At(9) != 10 {
		t.Fatalf("%+v %v", tr, err)
	}
	if _, err := ReadRecords("x", bytes.NewReader(b[:50])); !errors.Is(err, io.ErrUnexpectedEOF) ||
		!strings.Contains(err.Error(), "record 2") {
		t.Errorf("cut: %v", err)
	}
}

// TestExact compares the answers with those of a trace of four flows: the second half of generated
// traffic has another key for every tenth flow and the same packets.
func TestExact(t *testing.T) {
	var b []byte
	for _, c := range "aaaabbcd" + "aaabbbce" { // changes: a and b by 1, d and e by 1
		b = binary.LittleEndian.AppendUint64(append(b, bytes.Repeat([]byte{byte(c)}, 13)...), 7)
	}
	tr, err := ReadRecords("x", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	e := tr.Exact()
	if e.Moment2 != 7*7+5*5+2*2+1+1 || e.Change() != 4 || len(e.Changed(1)) != 4 || len(e.Changed(1.1)) != 0 ||
		e.Before.Len() != 8 || e.After.Len() != 8 {
		t.Errorf("moment %v, change %v, changed %v", e.Moment2, e.Change(), e.Changed(1))
	}
	if tr, err = Load("zipf:1.1", 10_000, 1); err != nil {
		t.Fatal(err)
	}
	whole, renamed := map[string]bool{}, 0
	for _, f := range tr.Flows() {
		whole[f.Key] = true
	}
	for _, f := range tr.Exact().After.Flows() {
		if !whole[f.Key] {
			renamed++
		}
	}
	if n := len(tr.Exact().After.Flows()); renamed < n/15 || renamed > n/7 {
		t.Errorf("%d of %d flows have another key", renamed, n)
	}
	if !bytes.Equal(tr.Key(0), tr.Exact().Before.Key(0)) {
		t.Error("the trace itself has changed")
	}
}

func FuzzReadRecords(f *testing.F) {
	f.Add(make([]byte, 42))
	f.Fuzz(func(t *testing.T, b []byte) {
		if tr, err := ReadRecords("x", bytes.NewReader(b)); err == nil && tr.Len() != len(b)/21 {
			t.Errorf("%d packets of %d bytes", tr.Len(), len(b))
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

// Package golden contains the tests of serialized forms that all sketches share.
package golden

import (
	"bytes"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write golden files anew")

// Sketch is a serializable sketch.
type Sketch interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// Check compares a sketch's bytes with testdata/NAME.hex, and decodes them into fresh, which must
// then serialize to the same bytes. It also checks that all damage is detected: each changed byte,
// and each shorter length.
func Check(t *testing.T, name string, s, fresh Sketch) {
	t.Helper()
	b, err := s.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name+".hex")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(wrap(hex.EncodeToString(b))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run the test with -update to make it)", err)
	}
	want, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("serialized bytes differ from %s: a change of the format needs a new version", file)
	}
	if err := fresh.UnmarshalBinary(want); err != nil {
		t.Fatalf("reading back: %v", err)
	}
	if again, err := fresh.MarshalBinary(); err != nil || !bytes.Equal(again, want) {
		t.Errorf("the bytes differ after reading and writing (%v)", err)
	}
	for i := range want {
		bad := bytes.Clone(want)
		bad[i] ^= 0x20
		if fresh.UnmarshalBinary(bad) == nil {
			t.Errorf("no error after a change of byte %d", i)
		}
		if fresh.UnmarshalBinary(want[:i]) == nil {
			t.Errorf("no error after a cut to %d bytes", i)
		}
	}
	if again, err := fresh.MarshalBinary(); err != nil || !bytes.Equal(again, want) {
		t.Errorf("damaged bytes changed the receiver (%v)", err)
	}
}

// Fuzz decodes random bytes with a valid checksum, so that the code behind the checksum is reached.
// An accepted input must serialize to the same bytes; Fuzz then passes the sketch to use.
func Fuzz(f *testing.F, seeds []Sketch, fresh func() Sketch, use func(Sketch)) {
	for _, s := range seeds {
		b, err := s.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:len(b)-4])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = appendChecksum(b)
		s := fresh()
		if s.UnmarshalBinary(b) != nil {
			return
		}
		if again, err := s.MarshalBinary(); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("accepted bytes are written otherwise (%v)", err)
		}
		use(s)
	})
}

func wrap(s string) string {
	var b strings.Builder
	for len(s) > 64 {
		b.WriteString(s[:64] + "\n")
		s = s[64:]
	}
	return b.String() + s + "\n"
}

func appendChecksum(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(b), crc32.ChecksumIEEE(b))
}

// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"bytes"
	"errors"
	"testing"
)

func TestDatagram(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	keys := func(session uint64) []byte {
		if session != 9 {
			return nil
		}
		return key
	}
	want := Datagram{Session: 9, Down: true, Epoch: 1 << 40}
	data := want.Append(nil, key)
	if got, err := OpenDatagram(data, keys); err != nil || got != want {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
	for i := range data {
		forged := bytes.Clone(data)
		forged[i] ^= 1
		if _, err := OpenDatagram(forged, keys); err == nil {
			t.Errorf("byte %d changed: accepted", i)
		}
	}
	if _, err := OpenDatagram(Datagram{Session: 8}.Append(nil, key), keys); !errors.Is(err, ErrSignature) {
		t.Errorf("unknown session: %v", err)
	}
	if _, err := OpenDatagram(data[:33], keys); !errors.Is(err, ErrDatagram) {
		t.Errorf("truncated: %v", err)
	}
}

func FuzzDatagram(f *testing.F) {
	key := bytes.Repeat([]byte{7}, 32)
	f.Add(Datagram{Session: 1, Epoch: 2}.Append(nil, key))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := OpenDatagram(data, func(uint64) []byte { return key })
		if err == nil && !bytes.Equal(d.Append(nil, key), data) {
			t.Errorf("%x decodes to %+v, which encodes differently", data, d)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// A Datagram carries an epoch over UDP. All integers are big-endian:
//
//	byte  0       version, 1
//	byte  1       direction: 0 to the collector, 1 to the host
//	bytes 2-9     session
//	bytes 10-17   epoch
//	bytes 18-33   HMAC-SHA-256 of the bytes before it, the first 16 bytes
//
// The key is one of the session, which both ends know from the TLS stream. A replayed datagram has
// no effect, because its epoch is not newer.
type Datagram struct {
	// Session identifies the session and its key.
	Session uint64
	// Down: the datagram is from the collector.
	Down bool
	// Epoch has begun; 0: the datagram only shows the host's address.
	Epoch uint64
}

// DatagramSize is the size of an encoded datagram in bytes.
const DatagramSize = 34

const (
	datagramVersion = 1
	datagramSigned  = 18
)

// Errors of datagrams.
var (
	ErrDatagram  = errors.New("not an epoch datagram")
	ErrSignature = errors.New("an epoch datagram with a wrong signature")
)

// Append appends the encoded datagram.
func (d Datagram) Append(b, key []byte) []byte {
	at := len(b)
	direction := byte(0)
	if d.Down {
		direction = 1
	}
	b = append(b, datagramVersion, direction)
	b = binary.BigEndian.AppendUint64(b, d.Session)
	b = binary.BigEndian.AppendUint64(b, d.Epoch)
	return append(b, sign(b[at:], key)...)
}

func sign(b, key []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(b)
	return h.Sum(nil)[:DatagramSize-datagramSigned]
}

// OpenDatagram decodes a datagram whose signature key verifies. key returns the key of a session,
// or nil for an unknown session.
func OpenDatagram(b []byte, key func(session uint64) []byte) (Datagram, error) {
	if len(b) != DatagramSize || b[0] != datagramVersion || b[1] > 1 {
		return Datagram{}, ErrDatagram
	}
	d := Datagram{Down: b[1] == 1, Session: binary.BigEndian.Uint64(b[2:]), Epoch: binary.BigEndian.Uint64(b[10:])}
	k := key(d.Session)
	if k == nil || !hmac.Equal(sign(b[:datagramSigned], k), b[datagramSigned:]) {
		return Datagram{}, ErrSignature
	}
	return d, nil
}

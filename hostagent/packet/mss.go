// SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

const (
	optionEnd, optionNone, optionMSS = 0, 1, 2
	checksumTCP                      = 16 // offset
)

// ClampMSS reduces the maximum segment size that the TCP header b announces to at most limit bytes,
// and corrects its checksum. A header without the option stays as it is.
func ClampMSS(b []byte, limit int) {
	if len(b) < tcp || limit < 1 || int(b[12]>>4)*4 > len(b) {
		return
	}
	end := int(b[12]>>4) * 4
	for at := tcp; at+1 < end; {
		switch b[at] {
		case optionEnd:
			return
		case optionNone:
			at++
			continue
		}
		length := int(b[at+1])
		if length < 2 || at+length > end {
			return
		}
		if b[at] == optionMSS && length == 4 {
			if int(binary.BigEndian.Uint16(b[at+2:])) > limit {
				words := b[at&^1 : (at+5)&^1] // words of the checksum that contain the option
				before := Sum(words)
				binary.BigEndian.PutUint16(b[at+2:], uint16(limit))
				AddChecksum(b[checksumTCP:], before+2*0xffff-Sum(words)%0xffff, 0xffff)
			}
			return
		}
		at += length
	}
}

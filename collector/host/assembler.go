// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"hash/crc32"

	"github.com/netsketch/netsketch/hostagent/hostv1"
)

// maxChunk is the largest piece of a report in bytes.
const maxChunk = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// assembler joins the chunks of one agent's reports. It holds at most one report of at most limit
// bytes, and allocates memory as data arrives, not as announced.
type assembler struct {
	limit uint64 // bytes

	open     bool // a report has begun and is incomplete
	skip     bool // the current report is refused
	epoch    uint64
	role     string
	part     uint64
	total    uint64
	checksum uint32
	got      uint64
	data     []byte
}

// add handles a chunk. When a report begins, add calls admit, which returns why the report is not
// used, or nil. add returns the report when it is complete, or the reason of a refusal with the
// report's first chunk. An error means that the agent broke the contract; the report is then
// incomplete and the stream cannot be used any more.
func (x *assembler) add(m *hostv1.ReportChunk, admit func(*hostv1.ReportChunk) error) (
	report []byte, refusal, err error) {
	size := uint64(len(m.GetData()))
	if !x.open {
		if m.GetOffset() != 0 {
			return nil, nil, fmt.Errorf("%s begins at offset %d; expected 0", name(m), m.GetOffset())
		}
		*x = assembler{limit: x.limit, open: true, epoch: m.GetEpoch(), role: m.GetRole(), part: m.GetPart(),
			total: m.GetTotalBytes(), checksum: m.GetChecksum()}
		if x.total > x.limit {
			refusal = fmt.Errorf("%s has %d bytes; agents.max-report allows %d", name(m), x.total, x.limit)
		} else {
			refusal = admit(m)
		}
		x.skip = refusal != nil
	}
	switch {
	case m.GetEpoch() != x.epoch || m.GetRole() != x.role || m.GetPart() != x.part:
		err = fmt.Errorf("%s begins before the report of role %q in epoch %d has ended", name(m), x.role, x.epoch)
	case m.GetTotalBytes() != x.total || m.GetChecksum() != x.checksum:
		err = fmt.Errorf("%s announces %d bytes with checksum %#x, but before %d bytes with %#x", name(m), m.GetTotalBytes(),
			m.GetChecksum(), x.total, x.checksum)
	case m.GetOffset() != x.got:
		err = fmt.Errorf("%s has a chunk out of order, at offset %d; expected %d", name(m), m.GetOffset(), x.got)
	case size > maxChunk:
		err = fmt.Errorf("%s has a chunk of %d bytes; at most %d are possible", name(m), size, maxChunk)
	case size == 0 && x.total > 0:
		err = fmt.Errorf("%s has a chunk without data", name(m))
	case size > x.total-x.got:
		err = fmt.Errorf("%s is larger than announced: more than %d bytes", name(m), x.total)
	}
	if err != nil {
		return nil, nil, err
	}
	x.got += size
	if !x.skip {
		x.data = append(x.data, m.GetData()...)
	}
	if x.got < x.total {
		return nil, refusal, nil
	}
	if x.skip {
		x.open = false
		return nil, refusal, nil
	}
	data := x.data
	x.data = nil
	if data == nil {
		data = []byte{}
	}
	if sum := crc32.Checksum(data, castagnoli); sum != x.checksum {
		return nil, nil, fmt.Errorf("%s has checksum %#x; expected %#x", name(m), sum, x.checksum)
	}
	x.open = false
	return data, nil, nil
}

// name describes the report that a chunk belongs to, for messages.
func name(m *hostv1.ReportChunk) string {
	role := m.GetRole()
	if len(role) > maxNameBytes {
		role = role[:maxNameBytes]
	}
	return fmt.Sprintf("the report of role %q in epoch %d", role, m.GetEpoch())
}

// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/netsketch/netsketch/hostagent/varint"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Counter counts packets of an epoch that are not in any row.
type Counter int

// The counters. Those from Untracked on make the epoch inexact.
const (
	NotIP        Counter = iota // outgoing, neither IPv4 nor IPv6
	Foreign                     // outgoing, from or to an address of no host with an agent
	NoHeader                    // incoming IP packets without a header
	Malformed                   // outgoing or incoming, with a truncated or invalid header
	Missed                      // epochs whose report was not requested in time
	NoLease                     // outgoing without a header: there is no lease for the destination
	NoRoom                      // outgoing without a header, because with the header they exceed the path's MTU
	Untracked                   // outgoing without a header, of a flow that the full table has no entry for
	Late                        // incoming, of an epoch that has been reported
	UnknownEpoch                // incoming, of an epoch more than four ahead or behind
	UnknownHost                 // incoming with a header, from an address of no host
	BadIndex                    // incoming, with a host index beyond the flow table
	Forged                      // incoming, with the host index of another flow
	IngressFull                 // incoming: no slot is left
	Restarted                   // changes of settings that restarted the flow table
	Counters
)

var counterNames = [Counters]string{"not-ip", "foreign", "no-header", "malformed", "missed-epochs", "no-lease",
	"no-room", "untracked", "late", "unknown-epoch", "unknown-host", "bad-index", "forged", "ingress-full", "restarted"}

// String returns the name of a counter, such as "untracked".
func (c Counter) String() string { return counterNames[c] }

// Inexact reports whether packets in this counter make results of the epoch inexact.
func (c Counter) Inexact() bool { return c >= Untracked }

// A report is
//
//	version     byte
//	host        16 bits, the number of the reporting host
//	epoch       64 bits
//	slots       byte, slots per flow; plus 128 with queries
//	counters    a count, then integers
//	mappings    integers: used mappings, mappings in the host's share
//	late        a count, then rows: epochs before that of the report, packets
//	egress      length in bytes, 32 bits; a count, then rows: index, flags, key, age, untagged
//	            packets and bytes if flagged, slots, values
//	ingress     a count of hosts; for each its number, a count, then rows: index, check, values
//	queries     a count, then rows: id, step, undefined, dropped, problem, tuples
//
// Integers are unsigned varints unless a width is given; those with a width are little-endian. The
// index of a row is the difference to the previous row, from -1 at first. Values are their length
// in one byte, a mask of the statistics that are not zero, and those statistics as signed varints.
// Equal values have equal bytes.
const (
	version = 1

	// Flags of an egress row.
	flagV6       = 1
	flagUntagged = 2

	withQueries = 128
)

// Builder appends a report to a slice. Call Begin, Egress for each row, BeginIngress, and for each
// host with rows BeginHost and Ingress, in increasing order of index and host.
type Builder struct {
	Data     []byte
	slots    int
	form     int // position of the slots per flow
	egress   int // position of the length of the egress rows
	previous int64
}

// Summary is the head of a report.
type Summary struct {
	Host     int
	Epoch    uint64
	Counters [Counters]uint64
	// MappingsUsed of MappingsOwned mappings of the host's share have a flow.
	MappingsUsed, MappingsOwned uint64
	// Late are the packets of Counters[Late] by their epoch, the oldest epoch first, at most MaxLate.
	// Packets of further epochs are in the counter alone.
	Late []LateEpoch
}

// MaxLate bounds Summary.Late.
const MaxLate = 64

// LateEpoch counts packets that arrived after the report of their epoch.
type LateEpoch struct{ Epoch, Packets uint64 }

// Begin starts a report with a count of egress rows.
func (b *Builder) Begin(s *Summary, slotsPerFlow, rows int) {
	b.slots, b.previous = slotsPerFlow, -1
	b.Data = append(b.Data, version)
	b.Data = binary.LittleEndian.AppendUint16(b.Data, uint16(s.Host))
	b.Data = binary.LittleEndian.AppendUint64(b.Data, s.Epoch)
	b.form = len(b.Data)
	b.Data = append(b.Data, byte(slotsPerFlow))
	b.Data = varint.Append(varint.AppendCounters(b.Data, s.Counters[:]), s.MappingsUsed, s.MappingsOwned)
	b.count(len(s.Late))
	for _, late := range s.Late {
		b.Data = varint.Append(b.Data, s.Epoch-late.Epoch, late.Packets)
	}
	b.egress = len(b.Data)
	b.Data = append(b.Data, 0, 0, 0, 0)
	b.count(rows)
}

// Egress appends a row of an outgoing flow.
func (b *Builder) Egress(r *EgressRow, values *Values) {
	b.index(r.Index)
	flags := byte(0)
	if r.Key.V6 {
		flags |= flagV6
	}
	if r.Untagged != (Untagged{}) {
		flags |= flagUntagged
	}
	b.Data = append(b.Data, flags)
	b.Data = r.Key.AppendBinary(b.Data)
	b.Data = binary.AppendUvarint(b.Data, r.Age)
	if flags&flagUntagged != 0 {
		b.Data = varint.Append(b.Data, r.Untagged.Packets, r.Untagged.Bytes)
	}
	for i := range b.slots {
		b.Data = binary.LittleEndian.AppendUint16(b.Data, r.Slots[i])
	}
	b.values(values)
}

// BeginIngress ends the egress rows and starts the ingress rows of a count of hosts.
func (b *Builder) BeginIngress(hosts int) {
	binary.LittleEndian.PutUint32(b.Data[b.egress:], uint32(len(b.Data)-b.egress-4))
	b.count(hosts)
}

// BeginHost starts the ingress rows of packets from one host.
func (b *Builder) BeginHost(host, rows int) {
	b.previous = -1
	b.Data = binary.LittleEndian.AppendUint16(b.Data, uint16(host))
	b.count(rows)
}

// Ingress appends a row of an incoming flow.
func (b *Builder) Ingress(index, check uint32, values *Values) {
	b.index(index)
	b.Data = binary.LittleEndian.AppendUint32(b.Data, check)
	b.values(values)
}

// Queries appends the results of queries, after all ingress rows.
func (b *Builder) Queries(rows []QueryRow) {
	if len(rows) == 0 {
		return
	}
	b.Data[b.form] |= withQueries
	b.count(len(rows))
	for i := range rows {
		r := &rows[i]
		b.Data = varint.Append(b.Data, r.ID, uint64(r.Step), r.Undefined, r.Dropped)
		for _, data := range [][]byte{[]byte(r.Problem), []byte(r.Copied), r.Tuples} {
			b.count(len(data))
			b.Data = append(b.Data, data...)
		}
	}
}

// QueryRow is the result of one step of a query.
type QueryRow struct {
	ID   uint64 // Query.ID
	Step int    // position of the sequence in the query
	// Undefined packets were left out because an expression divides by zero, Dropped tuples because
	// there are too many.
	Undefined, Dropped uint64
	Problem            string // reason for which the host does not run the query
	Copied             string // reason for which the agent runs the step on copied packets; empty: the kernel runs it
	Tuples             []byte // encoded by package query
}

func (b *Builder) count(n int) { b.Data = varint.Append(b.Data, uint64(n)) }

func (b *Builder) index(i uint32) {
	b.Data = binary.AppendUvarint(b.Data, uint64(int64(i)-b.previous))
	b.previous = int64(i)
}

func (b *Builder) values(values *Values) {
	at := len(b.Data)
	mask := uint64(0)
	for i, v := range values {
		if v != 0 {
			mask |= 1 << i
		}
	}
	b.Data = binary.AppendUvarint(append(b.Data, 0), mask)
	for _, v := range values {
		if v != 0 {
			b.Data = binary.AppendVarint(b.Data, v)
		}
	}
	b.Data[at] = byte(len(b.Data) - at - 1)
}

// EgressRow is an outgoing flow of a report.
type EgressRow struct {
	Index uint32
	Key   flow.Key
	Age   uint64 // epochs since the first packet of the flow
	Slots [4]uint16
	// Untagged packets are not in Values: the host sent them without the header.
	Untagged Untagged
	Values   []byte // encoded, of the packets with the header
}

// Untagged are the packets of a flow that its host sent without the header, for want of a lease or
// of room, and the bytes of their IP packets. Switches and the destination do not count them.
type Untagged struct{ Packets, Bytes uint64 }

// IngressRow is an incoming flow of a report. The source host knows its key.
type IngressRow struct {
	Index, Check uint32
	Values       []byte // encoded
	// At is the position of check and values in the report, for IngressAt.
	At int
}

// IngressAt returns check and values of a row at a position that NextIngress returned.
func IngressAt(report []byte, at int) (check uint32, values []byte) {
	b := report[at:]
	return binary.LittleEndian.Uint32(b), b[5 : 5+int(b[4])]
}

// errReport is wrapped by errors about a report that is no report.
var errReport = errors.New("invalid OmniMon report")

// Report reads a report from front to back: NextEgress until it returns false, then NextHost and
// for each host NextIngress until they return false, then Err.
type Report struct {
	Summary
	SlotsPerFlow int
	EgressRows   int
	data         []byte
	in           varint.Reader
	behind       int // bytes behind the egress rows
	rows, hosts  int // still to come
	queries      int // still to come; -1 before their count has been read
	ingress      bool
	previous     int64
}

// Open reads the head of a report.
func Open(data []byte) (*Report, error) {
	r := &Report{data: data, in: varint.Reader{Rest: data}, previous: -1}
	if v := r.byte(); r.in.Err() == nil && v != version {
		return nil, fmt.Errorf("%w: version %d, this collector reads version %d: update the older of the two",
			errReport, v, version)
	}
	if b := r.in.Bytes(2); b != nil {
		r.Host = int(binary.LittleEndian.Uint16(b))
	}
	if b := r.in.Bytes(8); b != nil {
		r.Epoch = binary.LittleEndian.Uint64(b)
	}
	form := r.byte()
	r.queries = -int(form / withQueries) // the number of queries follows the ingress rows
	if r.SlotsPerFlow = int(form % withQueries); r.SlotsPerFlow > 4 {
		r.in.Fail("slots per flow")
	}
	r.in.Counters(r.Counters[:])
	r.MappingsUsed, r.MappingsOwned = r.in.U64(), r.in.U64()
	for range r.lateRows() {
		late := LateEpoch{Epoch: r.Epoch - r.in.U64(), Packets: r.in.U64()}
		if late.Epoch >= r.Epoch {
			r.in.Fail("late packets of an epoch that is not over")
		}
		r.Late = append(r.Late, late)
	}
	if b := r.in.Bytes(4); b != nil {
		if r.behind = len(r.in.Rest) - int(binary.LittleEndian.Uint32(b)); r.behind < 0 {
			r.in.Fail("truncated")
		}
	}
	r.rows = r.in.Count(14)
	if r.EgressRows = r.rows; r.behind > len(r.in.Rest) {
		r.in.Fail("length of the outgoing flows")
	}
	return r, r.Err()
}

// lateRows reads how many epochs have late packets.
func (r *Report) lateRows() int {
	n := r.in.Count(2)
	if n > MaxLate {
		r.in.Fail("late packets of more epochs than possible")
		return 0
	}
	return n
}

// NextEgress reads the next egress row into row.
func (r *Report) NextEgress(row *EgressRow) bool {
	if r.rows == 0 || r.ingress || r.in.Err() != nil {
		return false
	}
	r.rows--
	row.Index = r.index()
	flags := r.byte()
	size := flow.FiveTupleV4
	if flags&flagV6 != 0 {
		size = flow.FiveTupleV6
	}
	if b := r.in.Bytes(size); b != nil {
		row.Key = key(b, flags&flagV6 != 0)
	}
	row.Age = r.in.U64()
	row.Untagged = Untagged{}
	if flags&flagUntagged != 0 {
		row.Untagged = Untagged{Packets: r.in.U64(), Bytes: r.in.U64()}
	}
	if b := r.in.Bytes(2 * r.SlotsPerFlow); b != nil {
		for i := range r.SlotsPerFlow {
			row.Slots[i] = binary.LittleEndian.Uint16(b[2*i:])
		}
	}
	row.Values = r.in.Bytes(int(r.byte()))
	return r.in.Err() == nil
}

// key decodes the canonical form of a 5-tuple.
func key(b []byte, v6 bool) (k flow.Key) {
	k.Mask, k.V6 = flow.FiveTuple, v6
	n := 4
	if v6 {
		n = 16
	}
	copy(k.Src[:], b[:n])
	copy(k.Dst[:], b[n:2*n])
	b = b[2*n:]
	k.Proto = b[0]
	k.SrcPort, k.DstPort = binary.BigEndian.Uint16(b[1:]), binary.BigEndian.Uint16(b[3:])
	return k
}

// SkipEgress skips the egress rows.
func (r *Report) SkipEgress() {
	if !r.ingress && r.in.Err() == nil {
		r.rows, r.in.Rest = 0, r.in.Rest[len(r.in.Rest)-r.behind:]
	}
}

// NextHost starts the ingress rows of the next host and returns its number.
func (r *Report) NextHost() (host int, ok bool) {
	if r.rows != 0 || r.in.Err() != nil {
		return 0, false
	}
	if !r.ingress {
		if len(r.in.Rest) != r.behind {
			r.in.Fail("length of the outgoing flows")
			return 0, false
		}
		r.ingress = true
		r.hosts = r.in.Count(3)
	}
	if r.hosts == 0 || r.in.Err() != nil {
		if r.queries < 0 {
			r.queries = r.in.Count(6)
		}
		if len(r.in.Rest) > 0 && r.queries == 0 {
			r.in.Fail("trailing bytes")
		}
		return 0, false
	}
	r.hosts--
	if b := r.in.Bytes(2); b != nil {
		host = int(binary.LittleEndian.Uint16(b))
	}
	r.rows, r.previous = r.in.Count(6), -1
	return host, r.in.Err() == nil
}

// NextIngress reads the next ingress row of the host into row.
func (r *Report) NextIngress(row *IngressRow) bool {
	if r.rows == 0 || !r.ingress || r.in.Err() != nil {
		return false
	}
	r.rows--
	row.Index = r.index()
	row.At = len(r.data) - len(r.in.Rest)
	if b := r.in.Bytes(4); b != nil {
		row.Check = binary.LittleEndian.Uint32(b)
	}
	row.Values = r.in.Bytes(int(r.byte()))
	return r.in.Err() == nil
}

// NextQuery reads the next result of a query into row, after NextHost has returned false.
func (r *Report) NextQuery(row *QueryRow) bool {
	if r.queries <= 0 || r.in.Err() != nil {
		return false
	}
	r.queries--
	*row = QueryRow{ID: r.in.U64(), Step: int(min(r.in.U64(), 1<<16)), Undefined: r.in.U64(), Dropped: r.in.U64()}
	row.Problem = string(r.in.Bytes(r.in.Count(1)))
	row.Copied = string(r.in.Bytes(r.in.Count(1)))
	row.Tuples = r.in.Bytes(r.in.Count(1))
	if r.queries == 0 && len(r.in.Rest) > 0 {
		r.in.Fail("trailing bytes")
	}
	return r.in.Err() == nil
}

// Err returns the error that ended the rows early.
func (r *Report) Err() error {
	if err := r.in.Err(); err != nil {
		return fmt.Errorf("%w: %w", errReport, err)
	}
	return nil
}

func (r *Report) byte() byte {
	if b := r.in.Bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *Report) index() uint32 {
	step := r.in.U64()
	if step == 0 || step > 1<<24 || r.previous+int64(step) >= 1<<24 {
		r.in.Fail("host indexes that do not increase, or exceed 24 bits")
		return 0
	}
	r.previous += int64(step)
	return uint32(r.previous)
}

// Decode reads encoded values into v.
func (v *Values) Decode(b []byte) error {
	*v = Values{}
	mask, n := binary.Uvarint(b)
	if n <= 0 || mask >= 1<<Statistics {
		return fmt.Errorf("%w: unknown statistics", errReport)
	}
	b = b[n:]
	for i := 0; mask != 0; i, mask = i+1, mask>>1 {
		if mask&1 == 0 {
			continue
		}
		x, n := binary.Varint(b)
		if n <= 0 {
			return fmt.Errorf("%w: truncated values", errReport)
		}
		v[i], b = x, b[n:]
	}
	return nil
}

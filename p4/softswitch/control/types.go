// SPDX-License-Identifier: Apache-2.0

package control

import (
	"time"
)

// MatchKind is the kind of match of a key field.
type MatchKind uint8

// Kinds of match. MatchDontCare matches every value; every field but an exact one accepts it.
const (
	MatchDontCare MatchKind = iota
	MatchExact
	MatchLPM
	MatchTernary
	MatchRange
	MatchOptional
)

// String returns the name P4 uses.
func (k MatchKind) String() string {
	switch k {
	case MatchDontCare:
		return "don't care"
	case MatchExact:
		return "exact"
	case MatchLPM:
		return "lpm"
	case MatchTernary:
		return "ternary"
	case MatchRange:
		return "range"
	case MatchOptional:
		return "optional"
	}
	return "unknown"
}

// Match is the match of one key field. Value and Mask are big-endian.
//
// An exact field takes MatchExact, an lpm field MatchLPM, a ternary field MatchTernary, a range
// field MatchRange, an optional field MatchOptional (the value must be equal); all but exact fields
// take MatchDontCare. The switch returns fields in full width, and a wholly masked field as
// MatchDontCare. It clears bits of Value outside of the mask or the prefix (a strict caller rejects
// them first).
type Match struct {
	Kind      MatchKind
	Value     []byte // the value; for MatchRange the low end
	Mask      []byte // mask of MatchTernary; inclusive high end of MatchRange
	PrefixLen int    // MatchLPM: bits, 0 to the field's width
}

// ActionKind is the kind of an entry's action.
type ActionKind uint8

// Kinds of action: a call with parameters, or in tables with an action profile or selector (an
// implementation) a member, a group, or an action set (P4Runtime's one-shot programming).
const (
	ActionCall ActionKind = iota
	ActionMember
	ActionGroup
	ActionSet
)

// Action is an entry's action. Only the fields of its Kind are used.
type Action struct {
	Kind   ActionKind
	Name   string           // ActionCall
	Params [][]byte         // ActionCall: big-endian, in the order of the action's parameters
	Member uint32           // ActionMember: member id
	Group  uint32           // ActionGroup: group id
	Set    []WeightedAction // ActionSet
	Random bool             // ActionSet: selects at random, not by the selector's hash
	Tag    uint32           // ActionSet: stored and returned
}

// WeightedAction is one action of an ActionSet.
type WeightedAction struct {
	Name   string
	Params [][]byte
	Weight int // 1 and up
	Watch  WatchPort
}

// WatchPort is a port; a group skips its member while the port is down. The zero value watches
// none.
type WatchPort struct {
	Set  bool
	Port uint32
}

// Entry is one entry of a table. Its key is Match and, in tables with priorities, Priority.
type Entry struct {
	Match    []Match // one for each key field, in the table's order (see TableInfo.Keys)
	Priority int32   // 1 and up in tables with ternary, range or optional fields, the highest wins; others: 0
	Action   Action

	IdleTimeout time.Duration // 0 for an entry that is never idle; only in tables with TableInfo.IdleTimeout
	// direct counter: initial value on insert (nil is zero), current value on read (nil: the table
	// has none)
	Counter  *CounterData
	Meter    *MeterConfig // direct meter: nil is unconfigured, packets are green
	Colors   *Colors      // on read: color counters of the direct meter; nil: the table has none
	Metadata []byte       // stored and returned

	Const bool // on read: the entry comes from the program and cannot be changed
	// on read, tables with IdleTimeout: time since the last hit or, before the first, since
	// insertion
	SinceLastHit time.Duration
}

// CounterData is a counter's value. Both counts are kept, whatever the counter's kind.
type CounterData struct {
	Packets uint64
	Bytes   uint64
}

// MeterConfig is the configuration of a two-rate three-color marker (RFC 2698, color-blind). Rates
// are in units per second, bursts in units of bytes or packets (MeterInfo.Unit). For a single-rate
// marker set PIR = CIR.
type MeterConfig struct {
	CIR    uint64
	CBurst uint64
	PIR    uint64
	PBurst uint64
}

// Colors are the packets that a meter has executed by color: green, yellow, red.
type Colors [3]CounterData

// Member is a member of an action profile or selector.
type Member struct {
	ID     uint32
	Action string
	Params [][]byte
}

// GroupMember is one member of a Group.
type GroupMember struct {
	Member uint32
	Weight int // 1 and up
	Watch  WatchPort
}

// Group is a group of an action selector. MaxSize 0 means the profile's own limit.
type Group struct {
	ID      uint32
	MaxSize int
	Members []GroupMember
}

// Replica is one copy of a multicast group or clone session.
type Replica struct {
	Port     uint32
	Instance uint16    // egress_rid
	Backups  []Replica // used while Port is down: the first with a port that is up; they have no backups
}

// MulticastGroup is a multicast group, with ID 1 to 65535.
type MulticastGroup struct {
	ID       uint32
	Replicas []Replica
	Metadata []byte // stored and returned
}

// CloneSession is the ports of cloned packets, with ID 0 to 32767.
type CloneSession struct {
	ID             uint32
	Replicas       []Replica
	ClassOfService uint32 // stored and returned: v1model's programs set the priority of clones
	PacketLength   int    // limit of copies in bytes; 0: no limit
}

// Digest is one message of the program's digest().
type Digest struct {
	Name   string        // name in P4Info
	ID     uint32        // the list id in the BMv2 JSON
	Values [][]byte      // one for each field, big-endian, full width
	At     time.Duration // time of the packet
}

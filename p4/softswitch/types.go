// SPDX-License-Identifier: Apache-2.0

package softswitch

import "time"

// MatchKind is how one key field of a table is compared.
type MatchKind uint8

// The kinds of match. MatchDontCare matches every value; it is allowed wherever the field is not exact.
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
// An exact field takes MatchExact; an lpm field MatchLPM or MatchDontCare; ternary MatchTernary or MatchDontCare; range
// MatchRange or MatchDontCare; optional MatchOptional (the value must be equal) or MatchDontCare. Fields returned by the
// switch are in the full width; a wholly masked field is returned as MatchDontCare. Bits of Value outside of the mask or
// the prefix are cleared by the switch (a strict caller refuses them first).
type Match struct {
	Kind      MatchKind
	Value     []byte // the value; for MatchRange the low end
	Mask      []byte // MatchTernary: the mask; MatchRange: the high end, inclusive
	PrefixLen int    // MatchLPM: bits, 0 to the field's width
}

// ActionKind tells what an entry points at.
type ActionKind uint8

// What an entry points at: an action with its parameters, or in tables with an action profile or selector (an
// implementation), a member, a group, or a set of its own (P4Runtime's one-shot programming).
const (
	ActionCall ActionKind = iota
	ActionMember
	ActionGroup
	ActionSet
)

// Action is what an entry does. Only the fields of its Kind are used.
type Action struct {
	Kind   ActionKind
	Name   string           // ActionCall
	Params [][]byte         // ActionCall: big-endian, in the order of the action's parameters
	Member uint32           // ActionMember: member id
	Group  uint32           // ActionGroup: group id
	Set    []WeightedAction // ActionSet
	Random bool             // ActionSet: each packet takes one by chance, not by the selector's hash
	Tag    uint32           // ActionSet: kept and returned unread
}

// WeightedAction is one action of an ActionSet.
type WeightedAction struct {
	Name   string
	Params [][]byte
	Weight int // 1 and up
	Watch  WatchPort
}

// WatchPort is a port whose being down takes a member out of its group. The zero value watches none.
type WatchPort struct {
	Set  bool
	Port uint32
}

// Entry is one entry of a table. Its key is Match together with Priority (which counts only where the table wants one).
type Entry struct {
	Match    []Match // one for each key field, in the table's order (see TableInfo.Keys)
	Priority int32   // tables with ternary, range or optional fields: 1 and up, the highest wins (P4Runtime's order); others: 0
	Action   Action

	IdleTimeout time.Duration // 0: never idle. Only tables with TableInfo.IdleTimeout
	Counter     *CounterData  // direct counter: initial value on insert (nil is zero), current value on read (nil: the table has none)
	Meter       *MeterConfig  // direct meter: nil is unconfigured, packets are green
	Colours     *Colours      // on read: what the direct meter has coloured; nil: the table has none
	Metadata    []byte        // kept and returned unread

	Const        bool          // on read: the entry comes from the program and cannot be changed
	SinceLastHit time.Duration // on read, tables with IdleTimeout: time since the last hit or, before the first, since insertion
}

// CounterData is a counter's value. A counter of one kind keeps both; the other is for the caller to leave out.
type CounterData struct {
	Packets uint64
	Bytes   uint64
}

// MeterConfig are the rates of a two-rate three-colour marker (RFC 2698, colour-blind). Rates are in units a second, bursts in units;
// units are bytes or packets as MeterInfo says. For a single-rate marker set PIR = CIR.
type MeterConfig struct {
	CIR    uint64
	CBurst uint64
	PIR    uint64
	PBurst uint64
}

// Colours are the packets that a meter has executed, by colour: green, yellow, red.
type Colours [3]CounterData

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

// Replica is one copy that a multicast group or clone session makes.
type Replica struct {
	Port     uint32
	Instance uint16    // egress_rid
	Backups  []Replica // instead of it while its port is down: the first whose port is up. They have none themselves
}

// MulticastGroup makes a copy for each replica. ID 1 to 65535.
type MulticastGroup struct {
	ID       uint32
	Replicas []Replica
	Metadata []byte // kept and returned unread
}

// CloneSession makes copies of cloned packets. ID 0 to 32767.
type CloneSession struct {
	ID             uint32
	Replicas       []Replica
	ClassOfService uint32 // kept and returned: v1model's clones have the priority that their program gives them
	PacketLength   int    // truncate copies to so many bytes; 0: whole packets
}

// Digest is one message a program generated with digest().
type Digest struct {
	Name   string        // as in P4Info
	ID     uint32        // the list id in the BMv2 JSON
	Values [][]byte      // one for each field, big-endian, full width
	At     time.Duration // time of the packet
}

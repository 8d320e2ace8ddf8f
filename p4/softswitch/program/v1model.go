// SPDX-License-Identifier: Apache-2.0

package program

// DropPort is the egress_spec by which v1model drops a packet.
const DropPort = 511

// MaxRounds bounds the rounds of one packet in loops of actions; BMv2 has no bound.
const MaxRounds = 1 << 20

// Parser errors: errors of core.p4, and from ErrorBase on the program's own.
const (
	PacketTooShort = 1 + iota
	NoMatch
	StackOutOfBounds
	HeaderTooShort
	ParserTimeout
	InvalidArgument
	ErrorBase = 16
)

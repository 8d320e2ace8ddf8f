// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"github.com/netsketch/netsketch/p4/softswitch/compile"
	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/machine"
	"github.com/netsketch/netsketch/p4/softswitch/ports"
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// Compile compiles a BMv2 JSON (p4c-bm2-ss, format version 2.x). A construct that the engine cannot
// run is an error that wraps ErrInvalid or ErrNotImplemented and names the construct and its place
// in the P4 source.
func Compile(json []byte) (*Program, error) { return compile.Program(json) }

// Aliases of the types of the switch's API, which other packages of the switch declare.
type (
	Program = program.Program // a compiled P4 program
	Stats   = machine.Stats   // packets by outcome

	Port         = ports.Config   // configuration of a port
	PortStatus   = ports.Status   // state of a port
	PortCounters = ports.Counters // counters of a port

	Match          = control.Match
	MatchKind      = control.MatchKind
	ActionKind     = control.ActionKind
	Action         = control.Action
	WeightedAction = control.WeightedAction
	WatchPort      = control.WatchPort
	Entry          = control.Entry
	CounterData    = control.CounterData
	MeterConfig    = control.MeterConfig
	Colors         = control.Colors
	Member         = control.Member
	GroupMember    = control.GroupMember
	Group          = control.Group
	Replica        = control.Replica
	MulticastGroup = control.MulticastGroup
	CloneSession   = control.CloneSession
	Digest         = control.Digest
	KeyInfo        = control.KeyInfo
	ActionInfo     = control.ActionInfo
	ParamInfo      = control.ParamInfo
	TableInfo      = control.TableInfo
	RegisterInfo   = control.RegisterInfo
	CounterInfo    = control.CounterInfo
	MeterUnit      = control.MeterUnit
	MeterInfo      = control.MeterInfo
	ProfileInfo    = control.ProfileInfo
	DigestInfo     = control.DigestInfo
	ValueSetInfo   = control.ValueSetInfo
	Error          = control.Error
)

// Kinds of matches and actions, units of meters.
const (
	MatchDontCare = control.MatchDontCare
	MatchExact    = control.MatchExact
	MatchLPM      = control.MatchLPM
	MatchTernary  = control.MatchTernary
	MatchRange    = control.MatchRange
	MatchOptional = control.MatchOptional
	ActionCall    = control.ActionCall
	ActionMember  = control.ActionMember
	ActionGroup   = control.ActionGroup
	ActionSet     = control.ActionSet
	MeterPackets  = control.MeterPackets
	MeterBytes    = control.MeterBytes
)

// DropPort is the egress_spec by which v1model drops a packet.
const DropPort = program.DropPort

// Kinds of failure, for errors.Is. An error of the switch is an [*Error] that wraps a kind.
var (
	ErrNotFound       = control.ErrNotFound
	ErrExists         = control.ErrExists
	ErrFull           = control.ErrFull
	ErrInvalid        = control.ErrInvalid
	ErrConst          = control.ErrConst
	ErrInUse          = control.ErrInUse
	ErrNoProgram      = control.ErrNoProgram
	ErrClosed         = control.ErrClosed
	ErrNotImplemented = control.ErrNotImplemented
)

// SPDX-License-Identifier: Apache-2.0

package program

import (
	"github.com/netsketch/netsketch/p4/softswitch/control"
)

// Table is a table of the program.
type Table struct {
	control.TableInfo
	Index      int
	KeyFields  []Key
	Words      int // words of a key
	Pieces     []KeyPiece
	Lookup     control.MatchKind // exact, lpm, ternary (range and mixed tables too)
	LPM        int               // the lpm key, or -1
	ActionByID map[int]*Action
	ByName     map[string]*Action
	Next       map[int]uint32 // action id to pc
	HitMiss    bool
	OnHit      uint32
	OnMiss     uint32
	Profile    int // index of the action profile, or -1
	Meter      *DirectMeter
	Counts     bool
	Ages       bool
	Seeds      []EntrySeed
	Default    *SeedAction
	MissPC     uint32 // next instruction of a miss without a default action
}

// Key is the place of a key field in the words of a key.
type Key struct {
	control.KeyInfo
	Word, Shift int // place of a field of up to 64 bits
	Words       int
	Mask        []uint64 // static mask, full width
	Valid       bool     // match_type "valid"
}

// KeyPiece fills part of a key word from a slot.
type KeyPiece struct {
	Slot  uint32
	Word  uint32
	Shift uint8
	Mask  uint64
}

type EntrySeed struct {
	Entry  control.Entry
	Action SeedAction
}

type SeedAction struct {
	Action *Action
	Params []uint64
	Const  bool
}

// Profile is an action profile or selector of the program.
type Profile struct {
	control.ProfileInfo
	Hash    *Hash // selector's hash; nil for a profile
	Actions map[string]*Action
}

// DirectMeter is a direct meter and the field for its color.
type DirectMeter struct {
	Info int
	Slot int
	Mask uint64
	Unit control.MeterUnit
}

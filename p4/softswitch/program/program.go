// SPDX-License-Identifier: Apache-2.0

package program

import (
	"github.com/netsketch/netsketch/p4/softswitch/control"
)

// Program is a compiled BMv2 JSON: immutable, and usable by any number of switches.
type Program struct {
	Info Info

	Code    []Instr
	Calls   []any // operations of ops.go
	Headers []*Header
	Actions []*Action
	Deparse []*Header
	Emitted []uint32 // validity slots of Deparse, which every packet reads
	Selects []*Select
	Hashes  []*Hash
	Locks   int // locks of registers

	Slots      []uint64 // initial slots of a packet: zeros, then the constants
	Fields     int      // slots of headers and metadata
	Params     int      // first slot of an action's parameters
	Consts     int      // first slot of the constants
	KeyScratch int      // first slot of the scratch space for two keys
	PadBytes   int      // bytes of the longest header, and of one read beyond its end

	ParserPC, IngressPC, EgressPC, DeparserPC uint32

	Std       StdFields
	NoError   uint64
	CoreError [ErrorBase]uint64

	Metadata   [][2]int // slots of metadata headers: from, to
	Tables     []*Table
	Profiles   []*Profile
	Digests    []Digest
	FieldLists map[int][]FieldCopy
}

// FieldCopy is one field that a clone, resubmit or recirculation preserves.
type FieldCopy struct{ Slot, Words int }

type Digest struct {
	control.DigestInfo
	Fields []FieldCopy
}

type StdField struct {
	Slot int
	Mask uint64
}

// StdFields are the metadata fields that v1model's switch reads and writes; Slot is -1 for a field
// that the program does not have.
type StdFields struct {
	IngressPort, EgressSpec, EgressPort, InstanceType, PacketLength  StdField
	ParserError, ChecksumError, McastGroup, EgressRID, Priority, QID StdField
	IngressTimestamp, EgressTimestamp                                StdField
	EnqTimestamp, EnqDepth, DeqDelta, DeqDepth                       StdField
}

// Info describes the objects of a program, in the program's order. Callers do not change it.
// Counters and meters include direct ones; tables include the tables that p4c makes for statements
// outside of tables ("tbl_…", never in P4Info).
type Info struct {
	Tables    []control.TableInfo
	Actions   []control.ActionInfo
	Registers []control.RegisterInfo
	Counters  []control.CounterInfo
	Meters    []control.MeterInfo
	Profiles  []control.ProfileInfo
	Digests   []control.DigestInfo
	ValueSets []control.ValueSetInfo
}

// Table returns a table's description by name.
func (p *Program) Table(name string) (control.TableInfo, bool) {
	for _, t := range p.Info.Tables {
		if t.Name == name {
			return t, true
		}
	}
	return control.TableInfo{}, false
}

// Action returns an action's description by name.
func (p *Program) Action(name string) (control.ActionInfo, bool) {
	for _, a := range p.Info.Actions {
		if a.Name == name {
			return a, true
		}
	}
	return control.ActionInfo{}, false
}

// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"math/big"

	"github.com/netsketch/netsketch/p4/softswitch/asm"
	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// maxSlots bounds the slots of a program, far above what a compiler produces for a real one.
const maxSlots = 1 << 19

// refuse returns the error for a construct that cannot be executed.
func refuse(construct string, src *bmv2json.Source, format string, args ...any) error {
	if s := src.String(); s != "" {
		construct += " (" + s + ")"
	}
	return &control.Error{Object: construct, Detail: fmt.Sprintf(format, args...), Kind: control.ErrInvalid}
}

func unsupported(construct string, src *bmv2json.Source, format string, args ...any) error {
	if s := src.String(); s != "" {
		construct += " (" + s + ")"
	}
	return &control.Error{Object: construct, Detail: fmt.Sprintf(format, args...), Kind: control.ErrNotImplemented}
}

// builder is the state of one compilation.
type builder struct {
	*asm.Builder
	file *bmv2json.File

	types       map[string]*program.HeaderType
	headerNamed map[string]*program.Header
	stacks      map[string]*program.Stack
	unions      map[string]*program.Union
	unionStacks map[string]*program.UnionStack

	slots  int    // allocated so far
	rounds uint32 // slot that counts the rounds of loops in actions, if the program has loops
	phv    int    // slots of headers and metadata, which are zero at the start of a packet
	params int

	err error

	// the construct being compiled, for errors
	what string
	src  *bmv2json.Source
	// operands of "runtime_data" and "local"
	locals []operand
	// set outside of actions: only actions lock registers
	noRegisters bool
	lockOf      []int // lock of each register

	objectNames
}

type objectNames struct {
	actionByID map[int]*actionDef
	regs       map[string]int
	counters   map[string]int
	meters     map[string]int
	directMtr  map[string]*program.DirectMeter
	calcs      map[string]*program.Hash
	profiles   map[string]int
	tables     map[string]int
	vsets      map[string]int
	vsetWidths map[string][]int
	digestID   map[int]int
	fieldLists map[int][]program.FieldCopy
}

// operand is a value of nw words in consecutive slots, least significant first, in two's
// complement. [lo, hi] is the range of the value.
type operand struct {
	slot   uint32
	nw     int
	lo, hi *big.Int
}

// failf records the first error; code generated after it is discarded.
func (b *builder) failf(format string, args ...any) {
	if b.err == nil {
		b.err = refuse(b.what, b.src, format, args...)
	}
}

func (b *builder) unsupportedf(format string, args ...any) {
	if b.err == nil {
		b.err = unsupported(b.what, b.src, format, args...)
	}
}

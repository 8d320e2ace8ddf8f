// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"encoding/binary"
	"fmt"
	"math/big"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
)

// Bounds on programs, far above what a compiler makes of a real one.
const (
	maxSlots      = 1 << 19
	maxHeaderBits = 1 << 16
	maxCode       = 1 << 22
	maxStateVisit = 1 << 14 // parser states a packet may pass
)

// refuse makes the error of a construct that cannot be run.
func refuse(construct string, src *bmv2json.Source, format string, args ...any) error {
	if s := src.String(); s != "" {
		construct += " (" + s + ")"
	}
	return &Error{Object: construct, Detail: fmt.Sprintf(format, args...), Kind: ErrInvalid}
}

func unsupported(construct string, src *bmv2json.Source, format string, args ...any) error {
	if s := src.String(); s != "" {
		construct += " (" + s + ")"
	}
	return &Error{Object: construct, Detail: fmt.Sprintf(format, args...), Kind: ErrNotImplemented}
}

// builder is the state of one Compile.
type builder struct {
	file  *bmv2json.File
	plain bool // leave the code as it is first made

	types       map[string]*headerLayout
	headers     []*header
	headerNamed map[string]*header
	stacks      map[string]*stack
	unions      map[string]*union
	unionStacks map[string]*unionStack

	slots  int    // taken so far
	rounds uint32 // slot that counts the rounds of loops in actions, in programs that have any
	phv    int    // slots of headers and metadata: those that a packet starts with zero
	// After them: action parameters, temporaries, constants.
	params   int
	temps    int
	tempCap  int
	tempNext int
	consts   map[string]uint32
	constVal []uint64
	constAt  int

	code []instr
	fns  []func(*packet)
	// what closures do, by their number, as far as it is known
	fnUse map[int]usage
	err   error

	// what is being compiled, for errors
	what string
	src  *bmv2json.Source
	// where "runtime_data" and "local" are
	locals []operand
	// registers can be named only in actions, which lock them
	noRegisters bool
	lockOf      []int // the lock of each register

	prog *Program
	objectNames
}

type objectNames struct {
	actionByID map[int]*action
	regs       map[string]int
	counters   map[string]int
	meters     map[string]int
	directMtr  map[string]*directMeterDef
	calcs      map[string]*calculation
	profiles   map[string]int
	tables     map[string]int
	vsets      map[string]int
	vsetWidths map[string][]int
	maxKey     int
	digestID   map[int]int
	fieldLists map[int][]fieldCopy
}

// operand is a value of nw words in consecutive slots, least significant first, in two's complement. [lo, hi] is the range of
// the value; exact tells that the words hold it, rather than only its low bits.
type operand struct {
	slot   uint32
	nw     int
	lo, hi *big.Int
}

var (
	bigZero = new(big.Int)
	bigOne  = big.NewInt(1)
)

func ones(width int) *big.Int {
	v := new(big.Int).Lsh(bigOne, uint(width))
	return v.Sub(v, bigOne)
}

// failf records the first error; code made after it is thrown away.
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

func (b *builder) emit(in instr) int {
	if len(b.code) >= maxCode {
		b.failf("program is longer than %d instructions", maxCode)
		return 0
	}
	b.code = append(b.code, in)
	return len(b.code) - 1
}

func (b *builder) call(f func(*packet)) {
	b.fns = append(b.fns, f)
	b.emit(instr{op: opCall, a: uint32(len(b.fns) - 1)})
}

// temp takes n temporary slots until the next statement.
func (b *builder) temp(n int) uint32 {
	if b.tempNext+n > b.tempCap {
		b.failf("an expression needs more than %d words of temporaries", b.tempCap)
		return uint32(b.temps)
	}
	at := b.temps + b.tempNext
	b.tempNext += n
	return uint32(at)
}

func (b *builder) freeTemps() { b.tempNext = 0 }

func (b *builder) isTemp(slot uint32) bool {
	return int(slot) >= b.temps && int(slot) < b.temps+b.tempCap
}

// constant returns slots that hold v in nw words.
func (b *builder) constant(v *big.Int, nw int) uint32 {
	words := wordsOf(v, nw)
	key := make([]byte, 0, 8*nw)
	for _, w := range words {
		key = binary.LittleEndian.AppendUint64(key, w)
	}
	if at, ok := b.consts[string(key)]; ok {
		return at
	}
	at := uint32(b.constAt + len(b.constVal))
	b.constVal = append(b.constVal, words...)
	b.consts[string(key)] = at
	if len(b.constVal) > maxSlots {
		b.failf("too many constants")
	}
	return at
}

func (b *builder) constU(v uint64) uint32 { return b.constant(new(big.Int).SetUint64(v), 1) }

// constOf returns the value of a slot that holds a constant.
func (b *builder) constOf(slot uint32) (uint64, bool) {
	if i := int(slot) - b.constAt; i >= 0 && i < len(b.constVal) {
		return b.constVal[i], true
	}
	return 0, false
}

// wordsOf returns the low nw words of v in two's complement.
func wordsOf(v *big.Int, nw int) []uint64 {
	words := make([]uint64, nw)
	m := new(big.Int).And(v, ones(64*nw)) // of a negative number: of its infinite two's complement
	for i := range words {
		words[i] = new(big.Int).And(new(big.Int).Rsh(m, uint(64*i)), ones(64)).Uint64()
	}
	return words
}

func (b *builder) here() uint32 { return uint32(len(b.code)) }

// patch makes the jumps at the given places go to here.
func (b *builder) patch(at []int) {
	for _, i := range at {
		b.code[i].d = b.here()
	}
}

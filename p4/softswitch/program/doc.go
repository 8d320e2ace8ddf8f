// SPDX-License-Identifier: Apache-2.0

// Package program has the compiled form of a P4 program, as data: instructions over the slots of a
// packet, operations, header layouts, tables, hashes and the descriptions of its objects. Package
// compile produces a Program, package machine executes it. A Program is immutable and usable by any
// number of switches.
//
// A program runs as a flat list of instructions, three-address code with masks, in which tables,
// actions, parser states and conditions are jumps. Rare operations are structs behind OpCall. The
// fields of headers and metadata live in one slice of 64-bit slots: a header is its validity (0 or
// 1), then its fields, each in one slot, or in several, least significant first, if it is wider
// than 64 bits. A field's value is kept unsigned, below 2^width; every instruction preserves that.
// Adjacent fields that the program only carries from parser to deparser share a slot.
package program

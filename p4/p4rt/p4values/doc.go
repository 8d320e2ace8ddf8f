// SPDX-License-Identifier: Apache-2.0

// Package p4values has the parts of a P4 program that both a P4Runtime client and a P4Runtime
// server need: values in the canonical byte string form of the specification, and a [Catalog] of
// the program's objects, made from its P4Info.
//
// All functions are pure and all values are immutable; they may be used from any goroutine.
package p4values

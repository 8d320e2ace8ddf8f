// SPDX-License-Identifier: Apache-2.0

// Package p4values holds what a P4Runtime client and a P4Runtime server both need to speak of a P4 program: values in the
// canonical byte string form of the specification, and a [Catalog] of the program's objects made from its P4Info.
//
// Everything here is a pure function or immutable after it was made, and may be used from any goroutine.
package p4values

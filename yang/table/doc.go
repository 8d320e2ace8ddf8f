// SPDX-License-Identifier: Apache-2.0

// Package table holds results as columns: the rows of one YANG list, one packed
// slice per key leaf and per value leaf.
//
// A Table is the form in which a result travels from a plugin to the store and
// from the store to the outputs. Single leaves are made only at the edge, for
// what somebody subscribed to.
//
// Columns are typed (unsigned, signed, decimal, boolean, text). A leaf that a row
// does not have is null, kept in a bitmap beside the values, which is absent
// from a column without nulls. Text is packed: bytes end to end with offsets, and,
// where values repeat, a dictionary with one code per row.
//
// Concurrency: a Builder belongs to one goroutine. A Table and its columns are
// immutable from the moment they are built and may be read by any number of
// goroutines; whoever hands a slice to a constructor gives it away. Slice and
// Column values share memory with the table they come from.
package table

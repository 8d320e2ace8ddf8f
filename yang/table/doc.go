// SPDX-License-Identifier: Apache-2.0

// Package table holds results as columns: the rows of one YANG list, one packed slice per key leaf
// and per value leaf.
//
// A Table is the form in which a result travels from a plugin to the store and from the store to
// the outputs. Single leaves are made only by outputs, for subscribed rows.
//
// Columns are typed (unsigned, signed, decimal, boolean, text). A leaf that a row does not have is
// null, kept in a bitmap next to the values; a column without nulls has no bitmap. Text is packed:
// bytes end to end with offsets, and, if values repeat, a dictionary with one code per row.
//
// # Concurrency
//
// A Builder belongs to one goroutine. A Table and its columns are immutable once built and may be
// read by any number of goroutines. A slice passed to a constructor belongs to the column. Results
// of Slice and Column share memory with the table they come from.
package table

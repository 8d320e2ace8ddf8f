// SPDX-License-Identifier: Apache-2.0

// Package store holds the newest results, in columns, per target and YANG list,
// and knows who is subscribed to what.
//
// A Batch is what one epoch gave: tables of rows for one target. Publish makes all
// of it visible at once. Readers take one of three ways in:
//
//   - View walks the rows that match some queries at one moment (gNMI Get, ONCE, POLL).
//   - Subscribe follows them: first what is there, then every change, coalesced per
//     leaf while the subscriber is busy (gNMI STREAM).
//   - Tap hands on whole batches as columns (InfluxDB, Prometheus, files).
//
// Rows are addressed as a gNMI client addresses them, by Query. Leaves are made only
// for rows that some query matches: a table of a million rows of which a hundred are
// subscribed to by key costs a hundred rows, and a keyed index of the table, once.
//
// Concurrency: every method of Store, Subscription and Tap may be called from any
// goroutine, save that a Subscription's Pull and QueueAll belong to one goroutine at
// a time. Publish never waits for a reader: a list is a stack of immutable segments
// with a version, readers keep the stack they began with. Subscribers with the same
// queries share one feed, which follows the lists in a goroutine of its own from the
// first subscriber to the last; what a subscriber costs on top grows with the rows
// it subscribed to and not with the rate at which they change.
package store

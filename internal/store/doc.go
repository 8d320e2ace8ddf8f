// SPDX-License-Identifier: Apache-2.0

// Package store holds the newest results, in columns, per target and YANG list, and the
// subscriptions to them.
//
// A Batch is the result of one epoch: tables of rows for one target. Publish makes all of it
// visible at once. There are three ways to read:
//
//   - View walks the rows that match some queries at one moment (gNMI Get, ONCE, POLL).
//   - Subscribe follows them: first the existing rows, then every change, coalesced per leaf while
//     the subscriber is busy (gNMI STREAM).
//   - Tap delivers whole batches as columns (InfluxDB, Prometheus, files).
//
// Rows are addressed as a gNMI client addresses them, by Query. Leaves are made only for rows that
// match a query: if subscribers name a hundred rows of a table of a million by key, the table
// costs the leaves of a hundred rows and, once, an index by key.
//
// # Concurrency
//
// All methods of Store, Subscription and Tap are safe for concurrent use, except that a
// Subscription's Pull and QueueAll belong to one goroutine at a time. Publish never waits for
// subscribers or views: a list is a stack of immutable segments with a version, and a view keeps
// its stack. Subscribers with the same queries share one feed, which follows the lists in its own
// goroutine from the first subscriber to the last. The cost of a further subscriber grows with its
// rows, not with the rate at which they change.
package store

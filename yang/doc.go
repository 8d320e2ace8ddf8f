// SPDX-License-Identifier: Apache-2.0

// Package yang knows the models that results are published in: the modules that
// come with netsketch, those that plugins bring at run time, and what a table or a
// gNMI path must be like to fit them.
//
// A Schema is compiled once from module texts by goyang and then only asked:
// which keys a list has and in which order, of what type a leaf is, whether a path
// exists, whether a table fits. Module texts of plugins are outside input. They are
// bounded before they are compiled (size, nesting, what groupings, types and
// identities expand to), so that a hostile one is refused and does not hang or
// exhaust the collector.
//
// Not supported, and refused with an error: submodules, deviations. Ignored:
// if-feature (every feature is on), must, when, rpc, action, notification, anydata;
// and, as goyang ignores them, refine and augment below uses.
//
// Concurrency: a Schema is immutable and may be used from any goroutine.
//
// The folder modules has netsketch's own modules, third_party those of others that
// they stand on, bindings the Go structs that ygot generates from them, and table
// the columns that results travel in.
package yang

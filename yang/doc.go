// SPDX-License-Identifier: Apache-2.0

// Package yang contains the models of published results: netsketch's modules, and the modules that
// plugins bring at run time. It checks tables and gNMI paths against them.
//
// goyang compiles a Schema once from module texts. The Schema then answers which keys a list has
// and in which order, the type of a leaf, whether a path exists, and whether a table fits. Module
// texts of plugins are outside input. Bounds are checked before they are compiled (size, nesting,
// the expansion of groupings, types and identities), so that a hostile module is refused and does
// not hang or exhaust the collector.
//
// Submodules and deviations are not supported and are refused with an error. Ignored: if-feature
// (every feature is on), must, when, rpc, action, notification and anydata; also refine and augment
// below uses, which goyang ignores.
//
// Concurrency: a Schema is immutable and may be used from any goroutine.
//
// The directory modules contains netsketch's own modules, third_party the modules that they import,
// bindings the Go structs that ygot generates from them, and table the columns of results.
package yang

// SPDX-License-Identifier: Apache-2.0

// Package epochs tests short epochs: the collector, a plugin process and emulated switches
// together, at ChameleMon's 50 ms. It only has tests.
package epochs

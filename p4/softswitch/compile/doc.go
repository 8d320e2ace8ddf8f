// SPDX-License-Identifier: Apache-2.0

// Package compile translates the BMv2 JSON of p4c-bm2-ss into a program.Program. Constructs that
// the engine cannot execute are errors that name the construct and its place in the P4 source.
package compile

// SPDX-License-Identifier: Apache-2.0

// Package conformance compares the compiled programs with docs/p4.md: packets go through a switch
// that runs a program, and the forwarded packets and the registers are compared with a model of
// that page, cell by cell.
//
// The package consists of tests. The BMv2 tests run when simple_switch_grpc is on the PATH.
package conformance

// SPDX-License-Identifier: Apache-2.0

// Package conformance holds the compiled programs against docs/p4.md: packets go
// through a switch that runs a program, and what it forwards and what its registers
// hold afterwards is compared with a model of that page, cell by cell.
//
// The package consists of tests. The BMv2 tests run when simple_switch_grpc is on the PATH.
package conformance

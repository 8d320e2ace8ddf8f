// SPDX-License-Identifier: Apache-2.0

// Package switches holds the soft switch and BMv2 to the same results. Its test runs
// against either: it pushes a program over P4Runtime, writes tables, injects packets
// over p4.bm.DataplaneInterface, and takes down every packet that leaves, every
// packet-in, digest, counter and register cell.
//
// The soft switch must give what BMv2 gave when testdata/*.golden was recorded. Where
// simple_switch_grpc is on the PATH, BMv2 runs as well, and the two are compared byte
// for byte. "go test -run Parity -v -update" records BMv2's results anew and writes
// docs/evidence/parity.md; it needs BMv2 and the shared trace. features.p4 is compiled in testdata
// by
//
//	p4c-bm2-ss --p4runtime-files features.p4info.txtpb -o features.json features.p4
package switches

// SPDX-License-Identifier: Apache-2.0

// Package firewall contains a P4 program and its tests. The program is firewall.p4; p4c compiles it
// to firewall.json and firewall.p4info.txtpb:
//
//	p4c-bm2-ss --p4runtime-files firewall.p4info.txtpb -o firewall.json firewall.p4
package firewall

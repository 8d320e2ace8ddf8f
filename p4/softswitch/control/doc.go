// SPDX-License-Identifier: Apache-2.0

// Package control has the types of the switch's control plane: table entries with their matches and
// actions, members and groups, multicast groups and clone sessions, counters and meters,
// descriptions of a program's objects, and errors.
//
// Objects have their BMv2 names, which are P4Info's full names ("MyIngress.ipv4_lpm"). Values are
// big-endian byte strings. They are accepted in any length if the number fits the field's width,
// and returned in the full width of the field: ceil(width/8) bytes.
package control

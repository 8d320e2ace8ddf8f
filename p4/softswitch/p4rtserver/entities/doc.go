// SPDX-License-Identifier: Apache-2.0

// Package entities joins the entities of P4Runtime with the state of a soft switch. A [Device] is a
// pipeline, described by P4Info, and the switch that runs it: it applies updates, answers reads,
// and carries the state over to another pipeline. Sessions, streams and locks are p4rtserver's.
package entities

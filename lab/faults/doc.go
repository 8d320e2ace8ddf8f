// SPDX-License-Identifier: Apache-2.0

// Package faults is the fault suite: it runs the collector, its plugins, switches and a database as
// processes, breaks one of them in each case, and counts losses.
//
// `make faults` runs all cases and writes their rows into docs/evidence/faults.csv; `go test` runs
// two of them, so that the harness itself stays in order. The package contains tests only. Command
// faulty is the plugin that misbehaves.
//
// A case is one line of a table (cases_test.go): the fault, the promise, the processes that it
// needs, the function that injects it, and the checks. The harness starts three switches (leaf1,
// leaf2, spine1) with links and routes, sends numbered packets from one host to the other, and
// records every epoch that a gNMI subscriber receives.
//
// Concurrency: a trial is used by its test's goroutine; traffic and the recorder have goroutines of
// their own, with their state behind a mutex.
package faults

// SPDX-License-Identifier: Apache-2.0

// Package switchtest creates switches for tests.
package switchtest

import (
	"testing"

	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// compiler compiles each program once for all switches of the tests.
var compiler softswitch.Compiler

// New returns a switch with a built-in program, which is closed when the test ends.
func New(tb testing.TB, name, program string) *softswitch.Switch {
	tb.Helper()
	p, err := compiled.Load(program)
	if err != nil {
		tb.Fatal(err)
	}
	executable, err := compiler.Compile(p.JSON)
	if err != nil {
		tb.Fatal(err)
	}
	sw := softswitch.New(softswitch.Config{Name: name})
	tb.Cleanup(sw.Close)
	if err := sw.Load(executable); err != nil {
		tb.Fatal(err)
	}
	return sw
}

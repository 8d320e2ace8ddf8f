// SPDX-License-Identifier: Apache-2.0

// Package program returns the command by which the user called this program, for commands in
// messages.
package program

import (
	"os"
	"path/filepath"
)

const name = "netsketch"

// Name returns netsketch as the user called it: as a path, such as bin/netsketch, if it is not on
// the PATH.
func Name() string { return nameOf(os.Args[0]) }

func nameOf(called string) string {
	if filepath.Base(called) != name { // the program is a test, or another program that uses this package
		return name
	}
	return called
}

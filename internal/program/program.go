// SPDX-License-Identifier: Apache-2.0

// Package program returns how the user has called this program, for commands that messages suggest.
package program

import (
	"os"
	"path/filepath"
)

const name = "netsketch"

// Name returns netsketch as the user has called it: a path, such as bin/netsketch, if it is not on
// the PATH.
func Name() string { return nameOf(os.Args[0]) }

func nameOf(called string) string {
	if filepath.Base(called) != name { // a test, or a program that links this one's packages
		return name
	}
	return called
}

// SPDX-License-Identifier: Apache-2.0

// Package program returns the command by which the user called this program, for commands in
// messages.
package program

import (
	"os"
	"path/filepath"
	"strings"
)

const name = "netsketch"

// Name returns netsketch as the user called it: as a path, such as bin/netsketch, if it is not on
// the PATH.
func Name() string { return nameOf(os.Args[0]) }

// Agent returns the name of an agent's program: netsketch-agent, or the file name of an agent that
// was built with further roles.
func Agent() string { return agentOf(os.Args[0]) }

func agentOf(called string) string {
	if base := filepath.Base(called); strings.HasPrefix(base, "hostagent-") {
		return base
	}
	return name + "-agent"
}

func nameOf(called string) string {
	if filepath.Base(called) != name { // the program is a test, or another program that uses this package
		return name
	}
	return called
}

// SPDX-License-Identifier: Apache-2.0

package score

import "slices"

// Commands writes commands that a person can try, each once.
func (b *Canvas) Commands(commands []string) {
	if b.Later || len(commands) == 0 {
		return
	}
	b.WriteString("try it from another terminal:\n")
	for i, command := range commands {
		if slices.Contains(commands[:i], command) {
			continue
		}
		for _, part := range Continued(command, b.Columns-2) {
			b.Printf("  %s\n", b.Bold(part))
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
)

// writable creates a directory and checks that files can be written to it, so that a run does not
// fail after minutes of work.
func writable(flag, directory string) error {
	const out = "name a writable directory"
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("%s: %w; %s", flag, err, out)
	}
	f, err := os.CreateTemp(directory, ".netsketch-*")
	if err != nil {
		return fmt.Errorf("%s: %w; %s", flag, err, out)
	}
	f.Close()
	return os.Remove(f.Name())
}

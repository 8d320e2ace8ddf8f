// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
)

// writable makes a folder, and sees that files can be written to it: before minutes of work whose results go there.
func writable(flag, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	f, err := os.CreateTemp(folder, ".netsketch-*")
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	f.Close()
	return os.Remove(f.Name())
}

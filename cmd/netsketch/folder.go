// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
)

// writable makes a folder, and sees that files can be written to it: before minutes of work whose results go there.
func writable(flag, folder string) error {
	const out = "name a folder that can be written to"
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("%s: %w; %s", flag, err, out)
	}
	f, err := os.CreateTemp(folder, ".netsketch-*")
	if err != nil {
		return fmt.Errorf("%s: %w; %s", flag, err, out)
	}
	f.Close()
	return os.Remove(f.Name())
}

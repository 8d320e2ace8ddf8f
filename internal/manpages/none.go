// SPDX-License-Identifier: Apache-2.0

//go:build nomanpages

// Package manpages is the command that writes the manual pages of a program, which this program
// leaves out.
package manpages

import "github.com/spf13/cobra"

// Add adds nothing.
func Add(*cobra.Command, string) {}

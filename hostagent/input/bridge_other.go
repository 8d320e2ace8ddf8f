// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package input

import "context"

// Run returns ErrUnsupported.
func (Bridge) Run(context.Context, ...Path) (Stats, error) { return Stats{}, ErrUnsupported }

// Check returns ErrUnsupported.
func (Bridge) Check() error { return ErrUnsupported }

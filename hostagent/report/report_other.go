// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package report

import "context"

// Run returns ErrUnsupported.
func (r Receiver) Run(context.Context, ...Path) (Stats, error) { return Stats{}, ErrUnsupported }

// Check returns ErrUnsupported.
func (r Receiver) Check() error { return ErrUnsupported }

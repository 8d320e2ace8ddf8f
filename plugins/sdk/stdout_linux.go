// SPDX-License-Identifier: Apache-2.0

package sdk

import "golang.org/x/sys/unix"

func dup2(from, to int) error { return unix.Dup3(from, to, 0) }

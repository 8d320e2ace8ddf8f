// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package softswitch

func prefetch(*fetchCell, int, *uint64) {}

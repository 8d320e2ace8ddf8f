// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package machine

func prefetch(*fetchCell, int, *uint64) {}

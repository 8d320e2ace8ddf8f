// SPDX-License-Identifier: Apache-2.0

// Package pages allocates the counters of sketches. Its functions are safe for concurrent use.
package pages

import "unsafe"

// huge is the size of a huge page in bytes, on processors for which Linux supports huge pages by
// default.
const huge = 2 << 20

// least is the number of bytes from which on counters get huge pages: half a page.
const least = huge / 2

// Make returns n counters that are 0. Counters of 1 MiB or more begin at a huge page, and Make
// requests huge pages from the system (Linux: madvise with MADV_HUGEPAGE, which
// /sys/kernel/mm/transparent_hugepage/enabled may ignore). A packet accesses a counter in each of
// several rows; with pages of 4 KiB most of these accesses also miss the cache of addresses. Up to
// 2 MiB of address space before the counters remain unused, and the last page is whole.
func Make[T ~uint32 | ~uint64 | ~int32](n int) []T {
	var t T
	size := int(unsafe.Sizeof(t))
	if n < least/size {
		return make([]T, n)
	}
	whole := (n*size + huge - 1) / huge * huge / size
	all := make([]T, whole+huge/size)
	skip := int(-uintptr(unsafe.Pointer(&all[0]))%huge) / size
	request(unsafe.Slice((*byte)(unsafe.Pointer(&all[skip])), whole*size))
	return all[skip : skip+n : skip+n]
}

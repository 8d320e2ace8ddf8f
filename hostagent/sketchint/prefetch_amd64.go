// SPDX-License-Identifier: Apache-2.0

package sketchint

import "unsafe"

// prefetch brings words of 8 bytes, by their numbers from base on, into the cache. Unlike loads,
// prefetches do not keep later instructions waiting.
//
//go:noescape
func prefetch(base unsafe.Pointer, words []uint32)

// SPDX-License-Identifier: Apache-2.0

package pages

import "syscall"

// request asks for huge pages. Without them, the memory is as good but slower, so an error means
// nothing.
func request(b []byte) { _ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) }

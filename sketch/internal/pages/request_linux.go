// SPDX-License-Identifier: Apache-2.0

package pages

import "syscall"

// request requests huge pages. An error is ignored, because without huge pages the memory is only
// slower.
func request(b []byte) { _ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) }

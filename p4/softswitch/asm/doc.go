// SPDX-License-Identifier: Apache-2.0

// Package asm holds the code of a program while the compiler builds it: instructions, temporaries,
// constants and jumps.
package asm

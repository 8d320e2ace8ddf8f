// SPDX-License-Identifier: Apache-2.0

// Package asm builds the code of a program: instructions, temporaries, constants, and the passes
// over them. Optimize removes repeated computations within an action, Eliminate results that are
// not read, and FuseReadOut turns read-out loops into one operation. LockRegisters makes an
// action's register accesses atomic, and DeferActions lets lanes execute them later where the
// packet does not depend on them.
package asm

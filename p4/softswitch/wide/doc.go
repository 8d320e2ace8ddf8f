// SPDX-License-Identifier: Apache-2.0

// Package wide has arithmetic on numbers of several words of 64 bits, least significant first, in
// two's complement, and their conversion from and to big-endian bytes and bit fields.
package wide

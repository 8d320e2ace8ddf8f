// SPDX-License-Identifier: Apache-2.0

// Package chamelemon holds ChameleMon's plugin against the program that it is for: soft
// switches run it, the plugin's plans are written into their tables by the names that
// P4Info has, and what it decodes from their registers is held against every packet that
// was lost. There is nothing but tests in it.
package chamelemon

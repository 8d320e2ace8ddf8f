// SPDX-License-Identifier: Apache-2.0

//go:build !linux

// Command harm needs Linux.
package main

import "fmt"

func main() { fmt.Println("harm: skipped: network namespaces need Linux") }

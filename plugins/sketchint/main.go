// SPDX-License-Identifier: Apache-2.0

// Command netsketch-plugin-sketchint is the SketchINT plugin.
package main

import (
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sketchint/plugin"
)

func main() { sdk.Serve(plugin.New()) }

// SPDX-License-Identifier: Apache-2.0

// Command netsketch-plugin-chamelemon is the ChameleMon plugin.
package main

import (
	"github.com/netsketch/netsketch/plugins/chamelemon/plugin"
	"github.com/netsketch/netsketch/plugins/sdk"
)

func main() { sdk.Serve(plugin.New()) }

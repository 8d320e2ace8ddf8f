// SPDX-License-Identifier: Apache-2.0

// Command netsketch-plugin-univmon is the UnivMon plugin. To add a G-sum function in
// Go, copy this file and pass plugin.WithFunction options to plugin.New.
package main

import (
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/univmon/plugin"
)

func main() { sdk.Serve(plugin.New()) }

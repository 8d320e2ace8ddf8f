// SPDX-License-Identifier: Apache-2.0

// Command netsketch-plugin-omnimon is the OmniMon plugin.
package main

import (
	"github.com/netsketch/netsketch/plugins/omnimon/plugin"
	"github.com/netsketch/netsketch/plugins/sdk"
)

func main() { sdk.Serve(plugin.New()) }

// SPDX-License-Identifier: Apache-2.0

// Command netsketch-plugin-lightguardian is the LightGuardian plugin.
package main

import (
	"github.com/netsketch/netsketch/plugins/lightguardian/plugin"
	"github.com/netsketch/netsketch/plugins/sdk"
)

func main() { sdk.Serve(plugin.New()) }

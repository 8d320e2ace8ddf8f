// SPDX-License-Identifier: Apache-2.0

package sdk

// Serve runs the plugin until the collector is done with it or gone, and then
// ends the process. It is the last call of main.
func Serve(p Plugin) {
	panic("sdk: Serve is not there yet")
}

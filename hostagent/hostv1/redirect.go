// SPDX-License-Identifier: Apache-2.0

package hostv1

// RedirectKey is the trailer of a session with a collector that does not serve the host: the
// address of the collector of the cluster that does, host:port.
const RedirectKey = "netsketch-collector"

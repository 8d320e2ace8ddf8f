// SPDX-License-Identifier: Apache-2.0

// Package kernel has what the data paths in the Linux kernel share: memory of maps, a barrier for
// programs that run, XDP links that outlive the agent, and checks of what a host lacks.
package kernel

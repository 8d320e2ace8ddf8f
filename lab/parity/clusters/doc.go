// SPDX-License-Identifier: Apache-2.0

// Package clusters holds a cluster of collectors and one collector together: its test compares the
// network-wide results of plugins, row by row.
package clusters

// SPDX-License-Identifier: Apache-2.0

// Package pluginhost starts and supervises plugin processes.
//
// A Host owns a private directory for sockets and the thread that starts processes. Host.Catalog
// describes the plugins of a directory. Host.Start starts one plugin as an Instance and restarts it
// whenever it dies. Instance.Analyze gives it one epoch and returns its results. A plugin that
// crashes, exits, hangs or sends malformed messages loses that epoch and no other.
//
// # Trust
//
// A plugin runs with the collector's rights. Therefore, the host starts only regular executable
// files that belong to root or the collector's user and that others cannot write; a pinned file
// must have the given SHA-256. Messages of a plugin are treated as hostile: sizes are bounded, and
// log lines are parsed with care and limited in length and rate. Results are not validated here:
// the analysis component does that.
//
// # Concurrency
//
// All methods are safe for concurrent use, except that one goroutine calls Instance.Analyze. Every
// goroutine and process has ended when Host.Close returns, descendants of plugins included. If the
// collector is killed, Linux kills the plugins (parent-death signal), and the next host kills the
// descendants that they left.
package pluginhost

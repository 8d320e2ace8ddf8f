// SPDX-License-Identifier: Apache-2.0

// Package pluginhost finds, verifies, starts, feeds and supervises plugin
// processes.
//
// A Host owns a private folder for sockets and the thread that processes are
// started from. Host.Catalogue says what lies in a plugin folder; Host.Start
// brings one plugin up as an Instance, and from then on restarts it whenever it
// dies. Instance.Analyse gives it one epoch and returns its results; a plugin
// that crashes, exits, hangs or answers nonsense loses that epoch, which an
// EpochError says, and nothing else.
//
// # Trust
//
// A plugin runs with the collector's rights. Therefore only regular executable
// files are started that root or the collector's own user owns and nobody else
// can write, on request only with a given SHA-256. What a plugin sends is held
// to be hostile: sizes are bounded, tables are checked against the lists it
// declared, log lines are parsed with care and limited in length and rate.
//
// # Concurrency
//
// All methods are safe for concurrent use. An Instance analyses one epoch at a
// time; a second call of Analyse waits for the first. Every goroutine and process
// has ended when Host.Close returns. Should the collector be killed, Linux kills
// the plugins (parent-death signal).
package pluginhost

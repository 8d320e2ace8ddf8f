// SPDX-License-Identifier: Apache-2.0

// Package southbound reads switches over gNMI: it republishes their leaves, and derives P4Runtime
// device ids, links and disabled ports for the network model.
//
// A Session subscribes to what discovery needs (ports with their P4Runtime numbers, LLDP neighbors,
// P4Runtime device ids, the host name) and to the paths of the configuration. A leaf that fits the
// collector's schema enters the session's cache and the store, under the switch's name as target,
// until the session ends: like openconfig/gnmi's collector, a lost session withdraws its values.
// Facts outlive the session, so that an unstable management network does not change the topology.
//
// A session subscribes to all paths in one stream (groups), in the Form that the switch
// understands. A path that the switch refuses leaves the stream. An ended stream is opened again
// while others go on, and a lost session is reopened, after jittered, growing waits. The cache
// keeps the time that the switch gave each leaf, and ignores updates and deletes that are older.
//
// Endpoint dials a switch's gNMI server for other callers, and Session.Form has the form of their
// requests.
//
// Discovery is the component: it owns the sessions of all switches, compares the links that LLDP
// reports with the configured ones, and reports device ids and topology changes to its
// Dependencies.
//
// Concurrency: methods of Session and Discovery may be called from any goroutine. A Session has one
// goroutine that owns its cache, and one for each stream; Close waits for all of them. Discovery
// has one goroutine; Stop waits for it and for all sessions.
package southbound

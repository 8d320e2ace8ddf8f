// SPDX-License-Identifier: Apache-2.0

// Package influxdb is the output that writes results to InfluxDB 2 or 1.8 as points.
//
// One row of a table is one point. Its measurement is the list's path without the
// container around the list, "univmon/heavy-hitter", "collector/device"; of a
// container its path without "state" at its end, "collector/epoch". Its tags are the list's keys and "target",
// its fields the leaves by their path without "state/", its time the end of the
// epoch. None of these depends on which plugins run, and a field's type never
// changes: it follows from the leaf's YANG type. Unsigned integers are sent signed,
// which every InfluxDB takes, with values above 2^63-1 held there and counted;
// Config.Unsigned sends them as they are.
//
// Batches of the store are encoded as they come and sent in requests of bounded
// size, one at a time and in order. While the database is away they go to a spool on
// disk, and from there when it is back; see Config for the bounds. What the answers
// mean:
//
//	204              delivered
//	413              the request is halved
//	a web page       not InfluxDB: as none
//	429, 5xx, none   tried again after Retry-After, or with growing pauses
//	401, 403, 404    the data are kept and the error shown; tried again once a minute
//	other 4xx        the points that are bad are found by halving, dropped, counted
//	                 and logged by name; "partial write" says how many were dropped
//
// Points may arrive more than once, which InfluxDB takes as once.
//
// Concurrency: as outputs.Output says. Inside, one goroutine encodes and one sends.
package influxdb

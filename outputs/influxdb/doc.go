// SPDX-License-Identifier: Apache-2.0

// Package influxdb is the output that writes results to InfluxDB 2 or 1.8 as points.
//
// One row of a table is one point. Its measurement is the path of the list without the container
// around the list ("univmon/heavy-hitter", "collector/device"); for a container it is the path
// without "state" at its end ("collector/epoch"). The tags are the keys of the list and "target",
// the fields are the leaves, named by their path without "state/", and the time is the end of the
// epoch. None of these depends on which plugins run, and the type of a field never changes: it
// follows from the YANG type of the leaf. Unsigned integers are sent as signed ones, which every
// InfluxDB accepts; values above 2^63-1 are sent as 2^63-1 and counted. Config.Unsigned sends them
// unchanged.
//
// The field "ended" is false in these points. When a batch removes a row from the store, or the
// output stops, a point with ended=true follows in the series of the row.
//
// The output encodes batches of the store as they arrive and sends them in requests of bounded
// size, one at a time and in order. While the database is unreachable, requests go to a spool on
// disk, and from there to the database when it is back; see Config for the bounds. The replies
// mean:
//
//	204                  delivered
//	InfluxDB's error     invalid points are dropped, counted and logged by name; with "partial
//	about line protocol  write" the answer has their number, otherwise halving finds them
//	413                  the request is halved
//	429, 408, 5xx, none  sent again after Retry-After and a growing pause
//	401, 403, 404, 407,  the points remain queued, and the error is shown; sent again once a minute
//	InfluxDB's others
//	any other            not InfluxDB: handled like no answer
//
// Points may arrive more than once; InfluxDB stores one.
//
// Concurrency: as for outputs.Output. One goroutine encodes and one sends.
package influxdb

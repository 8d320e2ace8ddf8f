// SPDX-License-Identifier: Apache-2.0

// Package grafana contains the Grafana dashboards for netsketch's points in InfluxDB, for import
// and for provisioning (directories dashboards and provisioning). The JSON is generated from
// internal/dashboards, which only a build with the tag dashboards compiles: Grafana's types take
// seconds. make generate also loads it strictly; the tests run every query against a real InfluxDB.
package grafana

//go:generate go run -tags dashboards ./internal/generate
//go:generate go test -vet=off -tags dashboards ./internal/dashboards

// SPDX-License-Identifier: Apache-2.0

// Package grafana contains the Grafana dashboards for netsketch's points in InfluxDB, for import
// and for provisioning (directories dashboards and provisioning). The JSON is generated from
// internal/dashboards. The tests load it strictly and run every query against a real InfluxDB.
package grafana

//go:generate go run ./internal/generate

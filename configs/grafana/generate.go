// SPDX-License-Identifier: Apache-2.0

// Package grafana has the dashboards for what netsketch writes to InfluxDB, as Grafana
// imports and provisions them (dashboards, provisioning). The JSON is generated from
// internal/dashboards; the tests load it strictly and run every query of it against a
// real InfluxDB.
package grafana

//go:generate go run ./internal/generate

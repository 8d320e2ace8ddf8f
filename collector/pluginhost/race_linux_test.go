// SPDX-License-Identifier: Apache-2.0

//go:build race

package pluginhost

func init() { raceDetector = true }

// SPDX-License-Identifier: Apache-2.0

// Package chamelemon scores the results of the plugin chamelemon in a scenario.
package chamelemon

import "github.com/netsketch/netsketch/lab/scenario/score"

// Algorithm returns how ChameleMon is scored.
func Algorithm() score.Algorithm { return score.Algorithm{Plugin: "chamelemon"} }

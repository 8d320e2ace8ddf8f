// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	_ "embed" // the schema

	"github.com/netsketch/netsketch/settings"
)

// configSchema is generated from Configuration.
//
//go:embed config.schema.json
var configSchema string

// Configuration is the configuration of ChameleMon; every key has a default.
type Configuration struct {
	// HeavyHitters are flows of at least a share of the packets and a number of packets.
	HeavyHitters HeavyHitters `yaml:"heavy-hitters"`
	// HeavyChanges are flows that changed by more packets than a number from one epoch to the next.
	HeavyChanges HeavyChanges `yaml:"heavy-changes"`
	// Victims are flows that lost packets.
	Victims Victims `yaml:"victims"`
	// Iterations is the number of iterations of MRAC, the estimator of the flow size distribution;
	// more are more accurate and take longer.
	Iterations int `yaml:"iterations" default:"8" range:"1..100"`
	// Division is the division of the IPv4 encoders where section 4.3 of the paper fixes it, in
	// buckets of an array. 0 stands for sixths of the downstream encoders, as in the paper.
	Division Division `yaml:"division"`
	// Start is the initial attention. Without control it never changes.
	Start Start `yaml:"start"`
	// HostPorts are ports, by switch, at which packets enter and leave, in addition to the hosts of
	// the network model: routers outside the measured network.
	HostPorts map[string][]uint32 `yaml:"host-ports" range:"0..511"`
	// Control adapts the attention to the network. Otherwise it stays as in start.
	Control bool `yaml:"control" default:"true"`
	// Literal follows the paper's rules of attention (section 4.3) without this project's changes, for
	// comparison.
	Literal bool `yaml:"literal" default:"false"`
}

// HeavyHitters defines heavy hitters: both conditions must hold.
type HeavyHitters struct {
	// Share is the least share of the packets.
	Share float64 `yaml:"share" default:"0.001" range:"0..1"`
	// Packets is the least number of packets.
	Packets uint64 `yaml:"packets" default:"100"`
	// Limit bounds the rows of all switches together; each switch has the same number of rows, its
	// largest flows. Node "network" may have as many rows more.
	Limit int `yaml:"limit" default:"400" range:"1.."`
}

// HeavyChanges defines heavy changes.
type HeavyChanges struct {
	// Packets is the number of packets that a heavy change exceeds.
	Packets uint64 `yaml:"packets" default:"100"`
	// Limit bounds the rows of all switches together; each switch has the same number of rows, its
	// largest changes. Node "network" may have as many rows more.
	Limit int `yaml:"limit" default:"150" range:"1.."`
}

// Victims bounds the rows of flows that lost packets.
type Victims struct {
	// Limit is the largest number of rows: the flows that lost the most packets.
	Limit int `yaml:"limit" default:"600" range:"1.."`
}

// Division is in buckets per array; 0: the paper's share of the downstream encoders.
type Division struct {
	// Reserve is the least part for heavy victim flows (HL) while the network is healthy. If 0, a
	// sixth. An even number is reduced by one.
	Reserve int `yaml:"reserve" default:"0" range:"0.."`
	// IllHL is the part for heavy victim flows (HL) while the network is ill. If 0, five sixths.
	IllHL int `yaml:"ill-hl" default:"0" range:"0.."`
	// IllLL is the part for sampled light victim flows (LL) while the network is ill. If 0, a sixth.
	IllLL int `yaml:"ill-ll" default:"0" range:"0.."`
}

// Start is an attention.
type Start struct {
	// High is the threshold Th: flows of at least this many packets are heavy-hitter candidates.
	High int `yaml:"high" default:"1" range:"1..65534"`
	// Low is the threshold Tl: other flows of at least this many packets are heavy victim candidates
	// (HL); at most high. Above 1, the division and sampling are those of an ill network.
	Low int `yaml:"low" default:"1" range:"1..65534"`
	// Sample is the share of the flows below low, the light candidates (LL), that is encoded.
	Sample float64 `yaml:"sample" default:"1" range:">0..1"`
}

// Validate returns the errors that tags cannot express.
func (c *Configuration) Validate() error {
	var errs settings.KeyErrors
	if st := c.Start; st.Low > st.High {
		errs.Add("start.low", "%d packets are above start.high, %d; expected 1 <= low <= high", st.Low, st.High)
	}
	return errs.Err()
}

// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"testing"

	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

// Ground truth reads the header that the plugin's configuration describes.
func TestLayout(t *testing.T) {
	for config, want := range map[string]header.Layout{
		`{}`: {Carrier: wire.CarrierOption, EtherType: header.DefaultEtherType, Slots: 2},
		`{"carrier": "shim", "ether-type": 34999, "slots-per-flow": 3,
		  "extremes": [{"field": "length"}, {"field": "ttl", "min": true}]}`: {Carrier: wire.CarrierShim, EtherType: 34999,
			Slots: 3, Differences: 2},
	} {
		got, err := layout(&score.Setting{Config: []byte(config)})
		if err != nil || *got != want {
			t.Errorf("%s: %+v, %v, want %+v", config, got, err, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
)

// stateVersion is the version of the format of the saved state: the JSON of type snapshot.
const stateVersion = 1

// snapshot is the state from which a new process resumes. It has no columns: a new process first
// publishes the interval that begins with it.
type snapshot struct {
	IDs    map[string]uint16 // ids of switches
	Writes []sdk.DeviceWrite // entries that the switches have
	Plans  uint64            // the newest plan's ID
	Alerts alert.List
}

// SaveState implements sdk.Stateful.
func (p *Plugin) SaveState() (sdk.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	data, err := json.Marshal(snapshot{p.ids, p.writes, p.plans, p.alerts})
	return sdk.State{Version: stateVersion, Data: data}, err
}

// RestoreState implements sdk.Stateful.
func (p *Plugin) RestoreState(state sdk.State) error {
	if state.Version != stateVersion {
		return fmt.Errorf("state of version %d, this plugin reads version %d", state.Version, stateVersion)
	}
	var s snapshot
	if err := json.Unmarshal(state.Data, &s); err != nil {
		return err
	}
	names := map[uint16]string{}
	for name, id := range s.IDs {
		if other, ok := names[id]; ok || id < 1 {
			return fmt.Errorf("switch %q has device id %d, as %q has; expected a number above 0 of its own", name, id, other)
		}
		names[id] = name
	}
	if err := s.Alerts.Check(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.IDs == nil {
		s.IDs = map[string]uint16{}
	}
	p.ids, p.writes, p.plans, p.alerts = s.IDs, s.Writes, s.Plans, s.Alerts
	return nil
}

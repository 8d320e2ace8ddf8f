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

// snapshot is the state from which a new process resumes. It lacks the interval before: the first
// interval of a process has no changes.
type snapshot struct {
	Nodes  map[string]uint32 // ids of switches
	Writes []sdk.DeviceWrite // entries that the switches have
	Plans  uint64            // the newest plan's ID
	Alerts alert.List
	Agents presence
}

// SaveState implements sdk.Stateful.
func (p *Plugin) SaveState() (sdk.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	data, err := json.Marshal(snapshot{p.nodes, p.writes, p.plans, p.alerts, p.agents})
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
	names := map[uint32]string{}
	for name, id := range s.Nodes {
		if other, ok := names[id]; ok || id < 1 || id > largestNode {
			return fmt.Errorf("switch %q has node id %d, as %q has", name, id, other)
		}
		names[id] = name
	}
	if err := s.Alerts.Check(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Nodes == nil {
		s.Nodes = map[string]uint32{}
	}
	if s.Agents.Silent == nil {
		s.Agents.Silent = map[string]uint64{}
	}
	p.nodes, p.writes, p.plans, p.alerts, p.agents = s.Nodes, s.Writes, s.Plans, s.Alerts, s.Agents
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package switchgnmi

import (
	"fmt"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/yang/table"
)

const (
	components = "/netsketch-platform:components/component"
	system     = "/netsketch-system:system"

	chassisName = "chassis"
	circuitName = "integrated-circuit0"
	osName      = "os"

	maker       = "netsketch"
	description = "netsketch soft switch"
)

// componentOf returns the name of a port's component.
func componentOf(id uint32) string { return fmt.Sprintf("port%d", id) }

// components returns the components' rows: the chassis, the integrated circuit, the software, and
// the ports.
func (s *Server) components(ports []softswitch.PortStatus, set settings) (*table.Table, error) {
	b := table.NewBuilder(components)
	name := b.TextKey("name")
	kind, id, about := b.Text("state/type"), b.Text("state/id"), b.Text("state/description")
	mfg, version := b.Text("state/mfg-name"), b.Text("state/software-version")
	oper, parent := b.Text("state/oper-status"), b.Text("state/parent")
	node, configured := b.Uint("integrated-circuit/state/node-id"), b.Uint("integrated-circuit/config/node-id")
	deviceID := s.deviceID(set)
	add := func(n, k, what, status, in string) {
		name.Append(n)
		kind.Append(k)
		id.Append(n)
		about.Append(what)
		mfg.Append(maker)
		oper.Append(status)
		parent.AppendSome(in)
		if k == "OPERATING_SYSTEM" {
			version.AppendSome(s.opts.Version)
		}
		for _, n := range []*table.UintAppender{node, configured} {
			n.AppendIf(deviceID, k == "INTEGRATED_CIRCUIT" && deviceID != 0)
		}
	}
	add(chassisName, "CHASSIS", description, "ACTIVE", "")
	add(circuitName, "INTEGRATED_CIRCUIT", "P4 pipeline", "ACTIVE", chassisName)
	add(osName, "OPERATING_SYSTEM", description, "ACTIVE", chassisName)
	for i := range ports {
		status := "ACTIVE"
		switch {
		case ports[i].Disabled:
			status = "DISABLED"
		case !ports[i].Up:
			status = "INACTIVE"
		}
		add(componentOf(ports[i].ID), "PORT", fmt.Sprintf("P4Runtime port %d", ports[i].ID), status, chassisName)
	}
	return b.Table()
}

// system returns the row of the system.
func (s *Server) system(_ []softswitch.PortStatus, set settings) (*table.Table, error) {
	b := table.NewBuilder(system)
	b.Text("config/hostname").Append(s.hostname(set))
	b.Text("state/hostname").Append(s.hostname(set))
	b.Text("state/current-datetime").Append(s.opts.Now().UTC().Truncate(time.Second).Format(time.RFC3339))
	b.Uint("state/boot-time").Append(uint64(s.opts.Started.UnixNano()))
	b.Text("state/software-version").AppendSome(s.opts.Version)
	return b.Table()
}

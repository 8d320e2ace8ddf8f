// SPDX-License-Identifier: Apache-2.0

// A Set is applied to a copy of the leaves that are set. The copy is decoded into the generated
// structs, which check types, ranges and keys, and reaches the switch only if all of it is
// accepted.

package switchgnmi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmi/value"
	"github.com/openconfig/ygot/ygot"
	"github.com/openconfig/ygot/ytypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/lldp"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/bindings"
)

// settable are the schema paths of the leaves that the switch can apply. A name, type
// or number of a port can only be set to the value that it has.
var settable = []string{
	"system/config/hostname",
	"interfaces/interface/config/name",
	"interfaces/interface/config/type",
	"interfaces/interface/config/enabled",
	"interfaces/interface/config/description",
	"interfaces/interface/config/id",
	"components/component/config/name",
	"components/component/integrated-circuit/config/node-id",
	"lldp/config/enabled",
	"lldp/interfaces/interface/config/name",
	"lldp/interfaces/interface/config/enabled",
}

// maxDescription is the length limit of an interface's description, in bytes.
const maxDescription = 255

// settings are the configuration of a switch. They are replaced, not changed.
type settings struct {
	leaves map[string]server.Edit // leaves that are set, by path
	device *bindings.Device       // same leaves, decoded; all other leaves have their default
}

type portSettings struct {
	enabled, lldp bool
	description   string
	id            uint32 // 0 on a switch that starts unconfigured, until it is set
}

// newSettings returns the defaults.
func newSettings() settings {
	return settings{
		leaves: map[string]server.Edit{},
		device: &bindings.Device{System: &bindings.System{}, Lldp: &bindings.Lldp{}},
	}
}

// with returns the settings with exactly these leaves, decoded and validated. New values are
// decoded into a copy of the structs; if leaves are removed, all are decoded into new structs.
func (s settings) with(leaves map[string]server.Edit) (settings, error) {
	for path := range s.leaves {
		if _, ok := leaves[path]; !ok {
			s = newSettings()
			break
		}
	}
	d, err := ygot.DeepCopy(s.device)
	if err != nil {
		return settings{}, fmt.Errorf("the configuration cannot be copied: %w", err)
	}
	next := settings{leaves, d.(*bindings.Device)}
	for _, path := range slices.Sorted(maps.Keys(leaves)) {
		if old, ok := s.leaves[path]; ok && old.Value == leaves[path].Value {
			continue
		}
		if err := next.decode(leaves[path]); err != nil {
			return settings{}, err
		}
	}
	if err := next.validate(); err != nil {
		return settings{}, err
	}
	return next, nil
}

// decode sets one leaf in the structs.
func (s *settings) decode(e server.Edit) error {
	v, err := value.FromScalar(e.Value)
	if err == nil {
		err = ytypes.SetNode(bindings.SchemaTree()["Device"], s.device, &gpb.Path{Elem: e.Path}, v,
			&ytypes.InitMissingElements{}, &ytypes.PreferShadowPath{})
	}
	if err != nil {
		return fmt.Errorf("%s: %.100q is not a valid value: %s", yang.PathString(e.Path), fmt.Sprint(e.Value),
			status.Convert(err).Message())
	}
	return nil
}

// validate checks the structs against the model and the limits of the switch.
func (s *settings) validate() error {
	if err := s.device.Validate(&ytypes.LeafrefOptions{IgnoreMissingData: true}); err != nil {
		return fmt.Errorf("the configuration is not valid: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(s.device.Interface)) {
		if err := checkInterface(s.device.Interface[name]); err != nil {
			return fmt.Errorf("/interfaces/interface[name=%s]/config/%w", name, err)
		}
	}
	return nil
}

// checkInterface checks the switch's restrictions beyond the model. Its errors begin with the leaf.
func checkInterface(i *bindings.Interface) error {
	switch i.Type {
	case bindings.IETFInterfaces_InterfaceType_UNSET, bindings.IETFInterfaces_InterfaceType_ethernetCsmacd:
	default:
		return fmt.Errorf("type: %q cannot be applied; expected %s", i.Type, ethernet)
	}
	if n := len(valueOr(i.Description, "")); n > maxDescription {
		return fmt.Errorf("description: the value has %d bytes; expected at most %d", n, maxDescription)
	}
	return nil
}

// port returns the settings of a port. unconfigured is set if the port has no number of its own.
func (s *settings) port(p softswitch.PortStatus, unconfigured bool) portSettings {
	name := lldp.PortName(p)
	i, l := s.device.Interface[name], s.device.Lldp.Interface[name]
	if i == nil {
		i = &bindings.Interface{}
	}
	if l == nil {
		l = &bindings.Lldp_Interface{}
	}
	id := p.ID
	if unconfigured {
		id = 0
	}
	return portSettings{enabled: valueOr(i.Enabled, true), lldp: valueOr(l.Enabled, true),
		description: valueOr(i.Description, ""), id: valueOr(i.Id, id)}
}

// deviceID returns P4Runtime's device_id; 0 is none.
func (s *Server) deviceID(set settings) uint64 {
	id := s.opts.DeviceID
	if s.opts.Unconfigured {
		id = 0
	}
	if c := set.device.Component[circuitName]; c != nil && c.IntegratedCircuit != nil {
		return valueOr(c.IntegratedCircuit.NodeId, id)
	}
	return id
}

func valueOr[T any](v *T, absent T) T {
	if v == nil {
		return absent
	}
	return *v
}

// hostname returns the configured host name; its default is the switch's name.
func (s *Server) hostname(set settings) string {
	return valueOr(set.device.System.Hostname, cmp.Or(s.opts.Name, "switch"))
}

// apply is the server's Apply.
func (s *Server) apply(_ context.Context, edits []server.Edit) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	ports := s.ports.Ports()
	current := s.current()
	leaves := maps.Clone(current.leaves)
	for _, e := range edits {
		if e.Delete {
			maps.DeleteFunc(leaves, func(_ string, leaf server.Edit) bool { return covers(e.Path, leaf.Path) })
			continue
		}
		if err := s.checkPath(e.Path, ports); err != nil {
			return err
		}
		leaves[yang.PathString(e.Path)] = e
	}
	next, err := current.with(leaves)
	if err != nil {
		return err
	}
	return s.change(next, ports)
}

// change makes settings take effect, or none of them. The caller holds applying.
func (s *Server) change(next settings, ports []softswitch.PortStatus) error {
	for i := range ports {
		if p := next.port(ports[i], s.opts.Unconfigured); p.id != 0 && p.id != ports[i].ID {
			return fmt.Errorf("/interfaces/interface[name=%s]/config/id: this port has the number %d, which is fixed; found %d",
				lldp.PortName(ports[i]), ports[i].ID, p.id)
		}
	}
	if id := s.deviceID(next); id != s.deviceID(s.current()) {
		if s.opts.SetDeviceID == nil {
			return status.Error(codes.Unimplemented, "Set: the device id of this switch cannot be changed")
		}
		if err := s.opts.SetDeviceID(id); err != nil {
			return status.Errorf(codes.FailedPrecondition, "Set: /components/component[name=%s]/integrated-circuit/config/"+
				"node-id: %v", circuitName, err)
		}
	}
	s.commit(next, ports)
	return nil
}

// checkpoint is the server's Checkpoint.
func (s *Server) checkpoint() (restore func() error) {
	before := s.current()
	return func() error {
		s.applying.Lock()
		defer s.applying.Unlock()
		return s.change(before, s.ports.Ports())
	}
}

func (s *Server) current() settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings
}

// covers reports whether a path names a leaf or a node above it. Keys that the path omits match
// any value.
func covers(path, leaf []*gpb.PathElem) bool {
	if len(path) > len(leaf) {
		return false
	}
	for i, e := range path {
		if e.GetName() != leaf[i].GetName() {
			return false
		}
		for k, v := range e.GetKey() {
			if leaf[i].GetKey()[k] != v {
				return false
			}
		}
	}
	return true
}

// checkPath returns an error unless the switch has the interface of a path and can apply its leaf.
func (s *Server) checkPath(path []*gpb.PathElem, ports []softswitch.PortStatus) error {
	var elems []string
	for _, e := range path {
		elems = append(elems, e.GetName())
		name, ok := e.GetKey()["name"]
		if ok && e.GetName() == "component" && name != circuitName {
			return fmt.Errorf("%s: the settings of component %.100q cannot be set; expected %s", yang.PathString(path), name,
				circuitName)
		}
		if !ok || e.GetName() != "interface" {
			continue
		}
		var names []string
		for i := range ports {
			names = append(names, lldp.PortName(ports[i]))
		}
		if !slices.Contains(names, name) {
			return fmt.Errorf("%s: the switch has no interface %.100q; it has %s",
				yang.PathString(path), name, strings.Join(names[:min(len(names), 32)], ", "))
		}
	}
	if !slices.Contains(settable, strings.Join(elems, "/")) {
		return status.Errorf(codes.Unimplemented, "Set: %s cannot be set on this switch; expected one of %s",
			yang.PathString(path), strings.Join(settable, ", "))
	}
	if elems[0] == "lldp" && s.opts.LLDP == nil {
		return status.Errorf(codes.Unimplemented, "Set: %s cannot be set: this switch has no LLDP agent",
			yang.PathString(path))
	}
	return nil
}

// commit applies settings. A port that was removed in the meantime is no error.
func (s *Server) commit(next settings, ports []softswitch.PortStatus) {
	for i := range ports {
		p := next.port(ports[i], s.opts.Unconfigured)
		// The pipeline cannot name a port without a number, so the port takes no packets.
		if on := p.enabled && (p.id != 0 || ports[i].ID == 0); ports[i].Disabled == on {
			if err := s.ports.SetPortEnabled(ports[i].ID, on); err != nil &&
				!errors.Is(err, softswitch.ErrNotFound) {
				s.opts.Logger.Error("gNMI: a port cannot be set", "switch", s.opts.Name, "port", ports[i].ID, "error",
					err)
			}
		}
	}
	s.mu.Lock()
	s.settings = next
	s.mu.Unlock()
	if a := s.opts.LLDP; a != nil {
		a.SetSystemName(s.hostname(next))
		for i := range ports {
			a.SetPortEnabled(ports[i].ID, next.port(ports[i], s.opts.Unconfigured).lldp)
		}
		a.SetEnabled(valueOr(next.device.Lldp.Enabled, true))
	}
	s.refresh()
}

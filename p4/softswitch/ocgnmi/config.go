// SPDX-License-Identifier: Apache-2.0

// Configuration: what Set changes. A Set is applied to a copy, which takes the place of
// the settings, and reaches the switch, only when all of it is accepted.

package ocgnmi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/lldp"
	"github.com/netsketch/netsketch/yang"
)

// settings are the configuration of a switch.
type settings struct {
	hostname string
	lldp     bool
	ports    map[uint32]portSettings // those that are not as newPort has them
}

type portSettings struct {
	enabled, lldp bool
	description   string
}

func newSettings(o Options) settings {
	name := o.Name
	if name == "" {
		name = "switch"
	}
	return settings{hostname: name, lldp: true, ports: map[uint32]portSettings{}}
}

func newPort() portSettings { return portSettings{enabled: true, lldp: true} }

func (s *settings) clone() settings {
	c := *s
	c.ports = maps.Clone(s.ports)
	return c
}

func (s *settings) port(id uint32) portSettings {
	if p, ok := s.ports[id]; ok {
		return p
	}
	return newPort()
}

func (s *settings) change(id uint32, f func(*portSettings)) {
	p := s.port(id)
	f(&p)
	s.ports[id] = p
}

// setting is one leaf that can be set.
type setting struct {
	path  []*gpb.PathElem
	reset func(*settings)
	set   func(*settings, any) error
}

// fixed is a leaf that is there and has one value only.
func fixed(path []*gpb.PathElem, want string) setting {
	return setting{path, func(*settings) {}, func(_ *settings, v any) error {
		if v != want {
			return fmt.Errorf("is %s on this switch, and cannot be changed", want)
		}
		return nil
	}}
}

// configurable lists all leaves that can be set.
func (s *Server) configurable(ports []softswitch.PortStatus) []setting {
	path := func(elems ...*gpb.PathElem) []*gpb.PathElem { return elems }
	e := func(name string) *gpb.PathElem { return &gpb.PathElem{Name: name} }
	list := []setting{{
		path(e("system"), e("config"), e("hostname")),
		func(x *settings) { x.hostname = newSettings(s.opts).hostname },
		func(x *settings, v any) error { x.hostname = v.(string); return nil },
	}}
	agent := s.opts.LLDP != nil
	if agent {
		list = append(list, setting{
			path(e("lldp"), e("config"), e("enabled")),
			func(x *settings) { x.lldp = true },
			func(x *settings, v any) error { x.lldp = v.(bool); return nil },
		})
	}
	for i := range ports {
		id, name := ports[i].ID, lldp.PortName(ports[i])
		entry := &gpb.PathElem{Name: "interface", Key: map[string]string{"name": name}}
		at := func(leaf string) []*gpb.PathElem { return path(e("interfaces"), entry, e("config"), e(leaf)) }
		list = append(list,
			fixed(at("name"), name), fixed(at("type"), ethernet),
			setting{at("enabled"),
				func(x *settings) { x.change(id, func(p *portSettings) { p.enabled = true }) },
				func(x *settings, v any) error {
					x.change(id, func(p *portSettings) { p.enabled = v.(bool) })
					return nil
				}},
			setting{at("description"),
				func(x *settings) { x.change(id, func(p *portSettings) { p.description = "" }) },
				func(x *settings, v any) error {
					if len(v.(string)) > 255 {
						return errors.New("is longer than 255 bytes")
					}
					x.change(id, func(p *portSettings) { p.description = v.(string) })
					return nil
				}})
		if !agent {
			continue
		}
		at = func(leaf string) []*gpb.PathElem {
			return path(e("lldp"), e("interfaces"), entry, e("config"), e(leaf))
		}
		list = append(list, fixed(at("name"), name), setting{at("enabled"),
			func(x *settings) { x.change(id, func(p *portSettings) { p.lldp = true }) },
			func(x *settings, v any) error {
				x.change(id, func(p *portSettings) { p.lldp = v.(bool) })
				return nil
			}})
	}
	return list
}

// apply is the server's Apply.
func (s *Server) apply(_ context.Context, edits []server.Edit) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	ports := s.ports.Ports()
	list := s.configurable(ports)
	byPath := make(map[string]*setting, len(list))
	for i := range list {
		byPath[yang.PathString(list[i].path)] = &list[i]
	}
	s.mu.Lock()
	next := s.settings.clone()
	s.mu.Unlock()
	for _, e := range edits {
		if e.Delete {
			for i := range list {
				if covers(e.Path, list[i].path) {
					list[i].reset(&next)
				}
			}
			continue
		}
		at := byPath[yang.PathString(e.Path)]
		if at == nil {
			return s.notConfigurable(e.Path, ports)
		}
		if err := at.set(&next, e.Value); err != nil {
			return fmt.Errorf("%s: %.100q %w", yang.PathString(e.Path), fmt.Sprint(e.Value), err)
		}
	}
	return s.commit(next, ports)
}

// covers reports whether a path is that of a node above a leaf, or the leaf's own. Keys
// that it does not have match any.
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

func (s *Server) notConfigurable(path []*gpb.PathElem, ports []softswitch.PortStatus) error {
	for _, e := range path {
		name, ok := e.GetKey()["name"]
		if !ok || e.GetName() != "interface" {
			continue
		}
		var names []string
		for i := range ports {
			if n := lldp.PortName(ports[i]); n == name {
				names = nil
				break
			} else if len(names) < 32 {
				names = append(names, n)
			}
		}
		if names != nil || len(ports) == 0 {
			return fmt.Errorf("%s: the switch has no interface %.100q; it has %s", yang.PathString(path), name, strings.Join(names, ", "))
		}
	}
	return fmt.Errorf("%s cannot be set on this switch; interfaces and LLDP can be enabled, interfaces described, and system/config/hostname given", yang.PathString(path))
}

// commit makes settings hold. A port that has been removed meanwhile is no error.
func (s *Server) commit(next settings, ports []softswitch.PortStatus) error {
	for i := range ports {
		p := next.port(ports[i].ID)
		if ports[i].Disabled == p.enabled {
			if err := s.ports.SetPortEnabled(ports[i].ID, p.enabled); err != nil && !errors.Is(err, softswitch.ErrNotFound) {
				s.opts.Logger.Error("gNMI: a port cannot be set", "switch", s.opts.Name, "port", ports[i].ID, "error", err)
			}
		}
	}
	s.mu.Lock()
	s.settings = next
	s.mu.Unlock()
	if a := s.opts.LLDP; a != nil {
		a.SetSystemName(next.hostname)
		for i := range ports {
			a.SetPortEnabled(ports[i].ID, next.port(ports[i].ID).lldp)
		}
		a.SetEnabled(next.lldp)
	}
	s.refresh()
	return nil
}

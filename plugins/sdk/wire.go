// SPDX-License-Identifier: Apache-2.0

// Conversions of descriptions, networks, settings and plans to protobuf and back. The collector
// and test tools use them; plugins need not.

package sdk

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
	"github.com/netsketch/netsketch/settings"
)

// MaxChunk is the largest piece of data in one message, in bytes. Larger arrays and tables are
// split.
const MaxChunk = 1 << 20

// MaxMessage is the largest message that either side accepts, in bytes.
const MaxMessage = 64 << 20

func toProto[A, B any](in []A, convert func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i := range in {
		out[i] = convert(in[i])
	}
	return out
}

// Proto returns the description as the contract's message.
func (d Description) Proto() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{
		Name: d.Name, Version: d.Version, Summary: d.Summary, ConfigSchema: d.ConfigSchema, Sdk: d.SDK,
		Programs: toProto(d.Programs, func(p ProgramNeed) *pluginv1.ProgramNeed {
			return &pluginv1.ProgramNeed{Role: p.Role, Program: p.Program}
		}),
		Objects: toProto(d.Objects, func(o ObjectNeed) *pluginv1.ObjectNeed {
			return &pluginv1.ObjectNeed{Name: o.Name, Annotation: o.Annotation, Values: o.Values, Role: o.Role,
				Optional: o.Optional, Shared: o.Shared}
		}),
		Modules: toProto(d.Modules, func(m Module) *pluginv1.YangModule {
			return &pluginv1.YangModule{Name: m.Name, Text: m.Text}
		}),
		Lists: toProto(d.Lists, func(l List) *pluginv1.ListInfo {
			return &pluginv1.ListInfo{Path: l.Path, Summary: l.Summary, Watchable: l.Watchable}
		}),
		Capabilities: &pluginv1.Capabilities{
			Query: d.Capabilities.Query, Merge: d.Capabilities.Merge, Drain: d.Capabilities.Drain,
			Watch: d.Capabilities.Watch, NetworkUpdates: d.Capabilities.NetworkUpdates, State: d.Capabilities.State,
		},
	}
}

// mark is the byte order mark, which some editors write in front of a text.
const mark = "\ufeff"

// DescriptionFrom converts the message back. Texts that a plugin keeps in files may begin with a
// byte order mark, which is removed.
func DescriptionFrom(m *pluginv1.DescribeResponse) Description {
	c := m.GetCapabilities()
	return Description{
		Name: m.GetName(), Version: m.GetVersion(), Summary: m.GetSummary(),
		ConfigSchema: strings.TrimPrefix(m.GetConfigSchema(), mark), SDK: m.GetSdk(),
		Programs: toProto(m.GetPrograms(), func(p *pluginv1.ProgramNeed) ProgramNeed {
			return ProgramNeed{Role: p.GetRole(), Program: p.GetProgram()}
		}),
		Objects: toProto(m.GetObjects(), func(o *pluginv1.ObjectNeed) ObjectNeed {
			return ObjectNeed{Name: o.GetName(), Annotation: o.GetAnnotation(), Values: o.GetValues(),
				Role: o.GetRole(), Optional: o.GetOptional(), Shared: o.GetShared()}
		}),
		Modules: toProto(m.GetModules(), func(y *pluginv1.YangModule) Module {
			return Module{Name: y.GetName(), Text: strings.TrimPrefix(y.GetText(), mark)}
		}),
		Lists: toProto(m.GetLists(), func(l *pluginv1.ListInfo) List {
			return List{Path: l.GetPath(), Summary: l.GetSummary(), Watchable: l.GetWatchable()}
		}),
		Capabilities: Capabilities{
			Query: c.GetQuery(), Merge: c.GetMerge(), Drain: c.GetDrain(),
			Watch: c.GetWatch(), NetworkUpdates: c.GetNetworkUpdates(), State: c.GetState(),
		},
	}
}

// Proto returns the network as the contract's message.
func (n Network) Proto() *pluginv1.Network {
	return &pluginv1.Network{
		Version: n.Version,
		Devices: toProto(n.Devices, func(d Device) *pluginv1.Device {
			return &pluginv1.Device{
				Name: d.Name, Role: d.Role, Program: d.Program,
				Objects: toProto(d.Objects, Object.proto), Unread: toProto(d.Unread, Object.proto),
				Ports: toProto(d.Ports, func(p Port) *pluginv1.Port {
					return &pluginv1.Port{Number: p.Number, Name: p.Name}
				}),
				Forwarding: d.Forwarding.proto(),
			}
		}),
		Hosts: toProto(n.Hosts, func(h Host) *pluginv1.Host {
			return &pluginv1.Host{Name: h.Name, Addresses: h.Addresses, Agent: h.Agent}
		}),
		Links: toProto(n.Links, func(l Link) *pluginv1.Link {
			return &pluginv1.Link{
				A:           &pluginv1.Endpoint{Node: l.A.Node, Port: l.A.Port},
				B:           &pluginv1.Endpoint{Node: l.B.Node, Port: l.B.Port},
				CapacityBps: l.CapacityBPS,
			}
		}),
	}
}

// NetworkFrom converts the message back.
func NetworkFrom(m *pluginv1.Network) Network {
	return Network{
		Version: m.GetVersion(),
		Devices: toProto(m.GetDevices(), func(d *pluginv1.Device) Device {
			return Device{
				Name: d.GetName(), Role: d.GetRole(), Program: d.GetProgram(),
				Objects: toProto(d.GetObjects(), objectFrom), Unread: toProto(d.GetUnread(), objectFrom),
				Ports: toProto(d.GetPorts(), func(p *pluginv1.Port) Port {
					return Port{Number: p.GetNumber(), Name: p.GetName()}
				}),
				Forwarding: forwardingFrom(d.GetForwarding()),
			}
		}),
		Hosts: toProto(m.GetHosts(), func(h *pluginv1.Host) Host {
			return Host{Name: h.GetName(), Addresses: h.GetAddresses(), Agent: h.GetAgent()}
		}),
		Links: toProto(m.GetLinks(), func(l *pluginv1.Link) Link {
			return Link{
				A:           Endpoint{Node: l.GetA().GetNode(), Port: l.GetA().GetPort()},
				B:           Endpoint{Node: l.GetB().GetNode(), Port: l.GetB().GetPort()},
				CapacityBPS: l.GetCapacityBps(),
			}
		}),
	}
}

func (o Object) proto() *pluginv1.Object {
	return &pluginv1.Object{Name: o.Name, Alias: o.Alias, Cells: uint64(o.Cells), WidthBits: uint32(o.Width),
		Banks: uint32(o.Banks), Annotations: o.Annotations.proto()}
}

func objectFrom(o *pluginv1.Object) Object {
	return Object{Name: o.GetName(), Alias: o.GetAlias(), Cells: int(o.GetCells()), Width: int(o.GetWidthBits()),
		Banks: int(o.GetBanks()), Annotations: annotationsFrom(o.GetAnnotations())}
}

func (f *Forwarding) proto() *pluginv1.Forwarding {
	if f == nil {
		return nil
	}
	return &pluginv1.Forwarding{
		Seed:   f.Seed,
		Groups: toProto(f.Groups, func(g PortGroup) *pluginv1.PortGroup { return &pluginv1.PortGroup{Ports: g.Ports} }),
		Routes: toProto(f.Routes, func(r Route) *pluginv1.Route {
			return &pluginv1.Route{Prefix: r.Prefix, Group: uint32(r.Group)}
		}),
	}
}

func forwardingFrom(m *pluginv1.Forwarding) *Forwarding {
	if m == nil {
		return nil
	}
	return &Forwarding{
		Seed:   m.GetSeed(),
		Groups: toProto(m.GetGroups(), func(g *pluginv1.PortGroup) PortGroup { return PortGroup{Ports: g.GetPorts()} }),
		Routes: toProto(m.GetRoutes(), func(r *pluginv1.Route) Route {
			return Route{Prefix: r.GetPrefix(), Group: int(r.GetGroup())}
		}),
	}
}

// Proto returns the settings as the contract's message.
func (s Settings) Proto() *pluginv1.ConfigureResponse {
	out := &pluginv1.ConfigureResponse{
		BankEpochs: uint32(max(s.BankEpochs, 0)), Merge: s.Merge,
		Bindings: toProto(s.Bindings, func(b Binding) *pluginv1.Binding {
			return &pluginv1.Binding{Device: b.Device, Object: b.Object}
		}),
		Missing: toProto(s.Missing, func(m MissingObject) *pluginv1.MissingObject {
			return &pluginv1.MissingObject{Device: m.Device, Object: m.Object, Consequence: m.Consequence}
		}),
	}
	if s.Plan != nil {
		out.Plan = s.Plan.Proto()
	}
	return out
}

// SettingsFrom converts the message back. The error is a settings.KeyErrors if the plugin refused
// its configuration.
func SettingsFrom(m *pluginv1.ConfigureResponse) (Settings, error) {
	if len(m.GetErrors()) > 0 {
		return Settings{}, settings.KeyErrors(toProto(m.GetErrors(), func(e *pluginv1.FieldError) settings.KeyError {
			return settings.KeyError{Key: e.GetField(), Message: e.GetMessage()}
		}))
	}
	s := Settings{
		BankEpochs: int(min(m.GetBankEpochs(), MaxBankEpochs)), Merge: m.GetMerge(),
		Bindings: toProto(m.GetBindings(), func(b *pluginv1.Binding) Binding {
			return Binding{Device: b.GetDevice(), Object: b.GetObject()}
		}),
		Missing: toProto(m.GetMissing(), func(o *pluginv1.MissingObject) MissingObject {
			return MissingObject{Device: o.GetDevice(), Object: o.GetObject(), Consequence: o.GetConsequence()}
		}),
	}
	if m.GetPlan() != nil {
		plan, err := PlanFrom(m.GetPlan())
		if err != nil {
			return Settings{}, err
		}
		s.Plan = &plan
	}
	return s, nil
}

// Proto returns the plan as the contract's message.
func (p Plan) Proto() *pluginv1.Plan {
	return &pluginv1.Plan{
		FromEpoch: p.FromEpoch, Id: p.ID, PreEpoch: p.PreEpoch,
		Writes: toProto(p.Writes, func(w DeviceWrite) *pluginv1.DeviceWrite {
			out := &pluginv1.DeviceWrite{Device: w.Device}
			entry := w.Entry.proto()
			switch w.Op {
			case Insert:
				out.Write = &pluginv1.DeviceWrite_Insert{Insert: entry}
			case Modify:
				out.Write = &pluginv1.DeviceWrite_Modify{Modify: entry}
			case Delete:
				out.Write = &pluginv1.DeviceWrite_Delete{Delete: entry}
			case SetDefault:
				out.Write = &pluginv1.DeviceWrite_SetDefault{SetDefault: entry}
			}
			return out
		}),
		Hosts: hostSettingsProto(p.Hosts),
	}
}

func hostSettingsProto(settings []HostSetting) []*pluginv1.HostSetting {
	var before HostSetting
	return toProto(settings, func(h HostSetting) *pluginv1.HostSetting {
		data, tail := h.Data, len(h.Tail)
		if tail == 0 || !SameTail(before.Tail, h.Tail) {
			data = h.Whole()
			tail = CommonTail(before.Whole(), data)
			data = data[:len(data)-tail]
		}
		before = h
		return &pluginv1.HostSetting{Host: h.Host, Role: h.Role, Data: data, Tail: uint64(tail)}
	})
}

// SameTail reports whether two slices are the same memory.
func SameTail(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// CommonTail returns the length of the longest common end of two slices.
func CommonTail(a, b []byte) (n int) {
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// MaxHostSetting is the largest setting of a host, in bytes.
const MaxHostSetting = 4 << 20

// maxCopied bounds the settings of a plan that cannot share memory, in bytes.
const maxCopied = 256 << 20

// hostSettingsFrom converts the messages back. Settings with a common end share its memory.
func hostSettingsFrom(settings []*pluginv1.HostSetting) (out []HostSetting, err error) {
	var before HostSetting
	copied := uint64(0)
	for _, h := range settings {
		data, tail := h.GetData(), h.GetTail()
		length := uint64(len(before.Data) + len(before.Tail))
		if tail > length {
			return nil, fmt.Errorf("the setting of host %q ends with %d bytes of the one before it, which has %d", h.GetHost(),
				tail, length)
		}
		if uint64(len(data))+tail > MaxHostSetting {
			return nil, fmt.Errorf("the setting of host %q has more than %d MiB", h.GetHost(), MaxHostSetting>>20)
		}
		x := HostSetting{Host: h.GetHost(), Role: h.GetRole(), Data: data}
		switch shared := uint64(len(before.Tail)); {
		case tail <= shared:
			x.Tail = before.Tail[shared-tail:]
		case shared == 0:
			x.Tail = before.Data[length-tail:]
		default: // the tail takes the end of both parts of the earlier setting
			if copied += length; copied > maxCopied {
				return nil, fmt.Errorf("settings of hosts have more than %d MiB", maxCopied>>20)
			}
			x.Tail = before.Whole()[length-tail:]
		}
		before = x
		if len(data) == 0 {
			x.Data, x.Tail = x.Tail, nil
		}
		out = append(out, x)
	}
	return out, nil
}

func (e TableEntry) proto() *pluginv1.TableEntry {
	return &pluginv1.TableEntry{
		Table: e.Table, Priority: e.Priority, Action: e.Action,
		Matches: toProto(e.Matches, func(f FieldMatch) *pluginv1.FieldMatch {
			return &pluginv1.FieldMatch{Field: f.Field, Value: f.Value, Mask: f.Mask, High: f.High,
				PrefixLen: f.PrefixLen}
		}),
		Params: toProto(e.Params, func(a ActionParam) *pluginv1.ActionParam {
			return &pluginv1.ActionParam{Name: a.Name, Value: a.Value}
		}),
	}
}

// PlanFrom converts the message back. A write without a kind is an error.
func PlanFrom(m *pluginv1.Plan) (Plan, error) {
	p := Plan{FromEpoch: m.GetFromEpoch(), ID: m.GetId(), PreEpoch: m.GetPreEpoch()}
	var err error
	if p.Hosts, err = hostSettingsFrom(m.GetHosts()); err != nil {
		return Plan{}, fmt.Errorf("plan from epoch %d: %w", p.FromEpoch, err)
	}
	for i, w := range m.GetWrites() {
		out := DeviceWrite{Device: w.GetDevice()}
		var entry *pluginv1.TableEntry
		switch kind := w.GetWrite().(type) {
		case *pluginv1.DeviceWrite_Insert:
			out.Op, entry = Insert, kind.Insert
		case *pluginv1.DeviceWrite_Modify:
			out.Op, entry = Modify, kind.Modify
		case *pluginv1.DeviceWrite_Delete:
			out.Op, entry = Delete, kind.Delete
		case *pluginv1.DeviceWrite_SetDefault:
			out.Op, entry = SetDefault, kind.SetDefault
		default:
			return Plan{}, fmt.Errorf("plan from epoch %d: write %d for device %q has no kind; expected insert, modify, "+
				"delete or set_default",
				p.FromEpoch, i, w.GetDevice())
		}
		out.Entry = TableEntry{
			Table: entry.GetTable(), Priority: entry.GetPriority(), Action: entry.GetAction(),
			Matches: toProto(entry.GetMatches(), func(f *pluginv1.FieldMatch) FieldMatch {
				return FieldMatch{Field: f.GetField(), Value: f.GetValue(), Mask: f.GetMask(), High: f.GetHigh(),
					PrefixLen: f.GetPrefixLen()}
			}),
			Params: toProto(entry.GetParams(), func(a *pluginv1.ActionParam) ActionParam {
				return ActionParam{Name: a.GetName(), Value: a.GetValue()}
			}),
		}
		p.Writes = append(p.Writes, out)
	}
	return p, nil
}

// Proto returns the state as the contract's message.
func (s State) Proto() *pluginv1.PluginState {
	return &pluginv1.PluginState{Epoch: s.Epoch, Version: s.Version, Data: s.Data}
}

// StateFrom converts the message back.
func StateFrom(m *pluginv1.PluginState) State {
	return State{Epoch: m.GetEpoch(), Version: m.GetVersion(), Data: m.GetData()}
}

// Proto returns the key as the contract's message.
func (k RowKey) Proto() *pluginv1.RowKey {
	return &pluginv1.RowKey{List: k.List, Target: k.Target, Keys: k.Keys}
}

// RowKeyFrom converts the message back.
func RowKeyFrom(m *pluginv1.RowKey) RowKey {
	return RowKey{List: m.GetList(), Target: m.GetTarget(), Keys: m.GetKeys()}
}

// levels maps event levels to slog's levels.
var levels = map[pluginv1.EventLevel]slog.Level{
	pluginv1.EventLevel_EVENT_LEVEL_UNSPECIFIED: slog.LevelInfo,
	pluginv1.EventLevel_EVENT_LEVEL_DEBUG:       slog.LevelDebug,
	pluginv1.EventLevel_EVENT_LEVEL_INFO:        slog.LevelInfo,
	pluginv1.EventLevel_EVENT_LEVEL_WARN:        slog.LevelWarn,
	pluginv1.EventLevel_EVENT_LEVEL_ERROR:       slog.LevelError,
}

// Proto returns the event as the contract's message.
func (e Event) Proto() *pluginv1.Event {
	out := &pluginv1.Event{Message: strings.ToValidUTF8(e.Message, "?")}
	if len(e.Attributes) > 0 {
		out.Attributes = make(map[string]string, len(e.Attributes))
		for key, value := range e.Attributes {
			out.Attributes[strings.ToValidUTF8(key, "?")] = strings.ToValidUTF8(value, "?")
		}
	}
	switch {
	case e.Level < slog.LevelInfo:
		out.Level = pluginv1.EventLevel_EVENT_LEVEL_DEBUG
	case e.Level < slog.LevelWarn:
		out.Level = pluginv1.EventLevel_EVENT_LEVEL_INFO
	case e.Level < slog.LevelError:
		out.Level = pluginv1.EventLevel_EVENT_LEVEL_WARN
	default:
		out.Level = pluginv1.EventLevel_EVENT_LEVEL_ERROR
	}
	return out
}

// EventFrom converts the message back. Its text is truncated to 1,024 bytes.
func EventFrom(m *pluginv1.Event) Event {
	message := m.GetMessage()
	if len(message) > 1024 {
		message = strings.ToValidUTF8(message[:1024], "")
	}
	return Event{Level: levels[m.GetLevel()], Message: message, Attributes: m.GetAttributes()}
}

// Proto returns the measurements as the contract's message.
func (s Stats) Proto() *pluginv1.EpochStats {
	return &pluginv1.EpochStats{
		DurationNs: int64(s.Duration), InputBytes: uint64(s.InputBytes), Tables: uint32(s.Tables), Rows: uint64(s.Rows),
	}
}

// StatsFrom converts the message back.
func StatsFrom(m *pluginv1.EpochStats) Stats {
	return Stats{
		Duration: time.Duration(m.GetDurationNs()), InputBytes: int(m.GetInputBytes()),
		Tables: int(m.GetTables()), Rows: int(m.GetRows()),
	}
}

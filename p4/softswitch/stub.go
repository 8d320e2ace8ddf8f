// SPDX-License-Identifier: Apache-2.0

package softswitch

import "time"

// Switch is a soft switch. Make one with New.
type Switch struct{}

// New makes a switch without ports and without a program.
func New(cfg Config) *Switch { return &Switch{} }

// Close stops the switch: later packets are dropped, later calls return ErrClosed, subscriptions end.
func (s *Switch) Close() {}

// Load makes p the switch's program. All state of the program before it is gone: entries, counters, meters, registers,
// groups, sessions, value sets. Ports and their counters stay.
func (s *Switch) Load(p *Program) error { return ErrNotImplemented }

// Program returns what is loaded, or nil.
func (s *Switch) Program() *Program { return nil }

// Stats returns what happened to packets.
func (s *Switch) Stats() Stats { return Stats{} }

// Now returns the time on the switch's clock.
func (s *Switch) Now() time.Duration { return 0 }

// InsertEntry adds an entry. Errors: ErrNotFound (table, action, member, group), ErrExists, ErrFull, ErrInvalid, ErrConst.
func (s *Switch) InsertEntry(table string, e Entry) error { return ErrNotImplemented }

// ModifyEntry replaces action, timeout, metadata of the entry with e's key; its direct counter is set if e.Counter is not nil,
// its direct meter is set to e.Meter.
func (s *Switch) ModifyEntry(table string, e Entry) error { return ErrNotImplemented }

// DeleteEntry removes the entry with e's key.
func (s *Switch) DeleteEntry(table string, e Entry) error { return ErrNotImplemented }

// ReadEntry returns the entry with e's key.
func (s *Switch) ReadEntry(table string, e Entry) (Entry, error) { return Entry{}, ErrNotImplemented }

// ReadEntries returns all entries of a table, the default entry not among them, in insertion order.
func (s *Switch) ReadEntries(table string) ([]Entry, error) { return nil, ErrNotImplemented }

// SetDefault sets a table's default action; nil sets it back to the program's own.
func (s *Switch) SetDefault(table string, a *Action) error { return ErrNotImplemented }

// Default returns a table's default action. It is nil when a table (one with an implementation) has none.
func (s *Switch) Default(table string) (*Action, error) { return nil, ErrNotImplemented }

// SetDirectCounter sets the direct counter of the entry with e's key.
func (s *Switch) SetDirectCounter(table string, e Entry, v CounterData) error {
	return ErrNotImplemented
}

// SetDirectMeter sets the direct meter of the entry with e's key; nil makes it unconfigured.
func (s *Switch) SetDirectMeter(table string, e Entry, v *MeterConfig) error {
	return ErrNotImplemented
}

// DefaultDirectCounter returns the direct counter of the default entry: packets that missed.
func (s *Switch) DefaultDirectCounter(table string) (CounterData, error) {
	return CounterData{}, ErrNotImplemented
}

// SweepIdle calls f for each entry that had no hit for its IdleTimeout since its last hit or last notification. Who drives the
// clock calls it: a ticker, or a simulation's event queue. The entry stays in the table.
func (s *Switch) SweepIdle(f func(table string, e Entry)) {}

// InsertMember adds a member to an action profile or selector.
func (s *Switch) InsertMember(profile string, m Member) error { return ErrNotImplemented }

// ModifyMember replaces a member's action, also where entries and groups use it.
func (s *Switch) ModifyMember(profile string, m Member) error { return ErrNotImplemented }

// DeleteMember removes a member that no entry and no group uses; else ErrInUse.
func (s *Switch) DeleteMember(profile string, id uint32) error { return ErrNotImplemented }

// ReadMembers returns all members by id.
func (s *Switch) ReadMembers(profile string) ([]Member, error) { return nil, ErrNotImplemented }

// InsertGroup adds a group to an action selector.
func (s *Switch) InsertGroup(profile string, g Group) error { return ErrNotImplemented }

// ModifyGroup replaces a group's members.
func (s *Switch) ModifyGroup(profile string, g Group) error { return ErrNotImplemented }

// DeleteGroup removes a group that no entry uses; else ErrInUse.
func (s *Switch) DeleteGroup(profile string, id uint32) error { return ErrNotImplemented }

// ReadGroups returns all groups by id.
func (s *Switch) ReadGroups(profile string) ([]Group, error) { return nil, ErrNotImplemented }

// ReadCounter returns cells from..to-1 of an indirect counter; to -1 means up to the end.
func (s *Switch) ReadCounter(name string, from, to int) ([]CounterData, error) {
	return nil, ErrNotImplemented
}

// WriteCounter sets a cell of an indirect counter.
func (s *Switch) WriteCounter(name string, index int, v CounterData) error { return ErrNotImplemented }

// ReadMeter returns the configurations of cells from..to-1 of an indirect meter, nil where unconfigured; to -1: up to the end.
func (s *Switch) ReadMeter(name string, from, to int) ([]*MeterConfig, error) {
	return nil, ErrNotImplemented
}

// WriteMeter configures a cell of an indirect meter and fills its buckets; nil makes it unconfigured.
func (s *Switch) WriteMeter(name string, index int, v *MeterConfig) error { return ErrNotImplemented }

// RegisterCells returns a register array's cell width in bits and its number of cells.
func (s *Switch) RegisterCells(name string) (width, size int, err error) {
	return 0, 0, ErrNotImplemented
}

// ReadRegister returns cells from..to-1 of a register array of at most 64 bits a cell; to -1 means up to the end. All cells of one
// call are of one moment between packets.
func (s *Switch) ReadRegister(name string, from, to int) ([]uint64, error) {
	return nil, ErrNotImplemented
}

// ReadRegisterBytes is ReadRegister for any width: ceil(width/8) big-endian bytes a cell, one after another.
func (s *Switch) ReadRegisterBytes(name string, from, to int) ([]byte, error) {
	return nil, ErrNotImplemented
}

// WriteRegister sets one cell of at most 64 bits.
func (s *Switch) WriteRegister(name string, index int, v uint64) error { return ErrNotImplemented }

// WriteRegisterBytes sets one cell of any width from a big-endian number.
func (s *Switch) WriteRegisterBytes(name string, index int, v []byte) error {
	return ErrNotImplemented
}

// ResetRegister sets all cells of a register array to zero.
func (s *Switch) ResetRegister(name string) error { return ErrNotImplemented }

// InsertMulticastGroup adds a multicast group.
func (s *Switch) InsertMulticastGroup(g MulticastGroup) error { return ErrNotImplemented }

// ModifyMulticastGroup replaces a multicast group's replicas.
func (s *Switch) ModifyMulticastGroup(g MulticastGroup) error { return ErrNotImplemented }

// DeleteMulticastGroup removes a multicast group.
func (s *Switch) DeleteMulticastGroup(id uint32) error { return ErrNotImplemented }

// ReadMulticastGroups returns all multicast groups by id.
func (s *Switch) ReadMulticastGroups() []MulticastGroup { return nil }

// InsertCloneSession adds a clone session.
func (s *Switch) InsertCloneSession(c CloneSession) error { return ErrNotImplemented }

// ModifyCloneSession replaces a clone session.
func (s *Switch) ModifyCloneSession(c CloneSession) error { return ErrNotImplemented }

// DeleteCloneSession removes a clone session.
func (s *Switch) DeleteCloneSession(id uint32) error { return ErrNotImplemented }

// ReadCloneSessions returns all clone sessions by id.
func (s *Switch) ReadCloneSessions() []CloneSession { return nil }

// SetValueSet replaces the members of a parser value set. A member has one Match for each element of the key.
func (s *Switch) SetValueSet(name string, members [][]Match) error { return ErrNotImplemented }

// ReadValueSet returns the members of a parser value set.
func (s *Switch) ReadValueSet(name string) ([][]Match, error) { return nil, ErrNotImplemented }

// SubscribeDigests returns a channel of at most buffer waiting digests, and a function that ends the subscription and closes
// the channel. A digest that finds the channel full is dropped and counted in Stats.DigestDrops.
func (s *Switch) SubscribeDigests(buffer int) (<-chan Digest, func()) {
	c := make(chan Digest, buffer)
	return c, func() { close(c) }
}

// Inject lets a packet arrive on a port at a time on the switch's clock. It returns when the packet and all copies of it have left
// or were dropped. pkt is not changed and not kept.
func (s *Switch) Inject(port uint32, pkt []byte, at time.Duration) {}

// PacketOut lets a packet arrive on the CPU port now. pkt begins with the bytes of the packet_out header.
func (s *Switch) PacketOut(pkt []byte) error { return ErrNotImplemented }

// PacketOutAt is PacketOut at a time on the switch's clock.
func (s *Switch) PacketOutAt(pkt []byte, at time.Duration) error { return ErrNotImplemented }

// SetPacketIn sets who takes the packets that leave on the CPU port; they begin with the bytes of the packet_in header. The slice
// is overwritten after f returns. nil: such packets are dropped and counted.
func (s *Switch) SetPacketIn(f func(pkt []byte)) {}

// AddPort adds a port. Ids are 0 to 510 and not the CPU port. Errors: ErrExists, ErrInvalid.
func (s *Switch) AddPort(id uint32, p Port) error { return ErrNotImplemented }

// RemovePort removes a port.
func (s *Switch) RemovePort(id uint32) error { return ErrNotImplemented }

// SetPortUp takes a port up or down. A port that is down takes no packets and sends none.
func (s *Switch) SetPortUp(id uint32, up bool) error { return ErrNotImplemented }

// Ports returns the state of all ports by id, the CPU port not among them.
func (s *Switch) Ports() []PortStatus { return nil }

// PortStatus returns the state of one port.
func (s *Switch) PortStatus(id uint32) (PortStatus, error) { return PortStatus{}, ErrNotImplemented }

// WatchPorts calls f after each change of a port (added, removed, up, down), in the goroutine that made the change, until the
// returned function is called.
func (s *Switch) WatchPorts(f func(PortStatus)) (stop func()) { return func() {} }

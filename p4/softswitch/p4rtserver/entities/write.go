// SPDX-License-Identifier: Apache-2.0

package entities

import (
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// undo reverts an update; nil if there is nothing to revert or the caller does not need it.
type undo func() error

// Write applies the updates of a request in the order given.
func (d *Device) Write(r *p4v1.WriteRequest) error {
	switch r.GetAtomicity() {
	case p4v1.WriteRequest_CONTINUE_ON_ERROR:
		return d.writeAll(r.GetUpdates(), r.GetRole())
	case p4v1.WriteRequest_ROLLBACK_ON_ERROR:
		return d.writeOrRollBack(r.GetUpdates(), r.GetRole())
	case p4v1.WriteRequest_DATAPLANE_ATOMIC:
		// Packets see all of the batch or none of it: a batch that fails is reverted before packets
		// run again.
		return d.sw.Atomically(func() error { return d.writeOrRollBack(r.GetUpdates(), r.GetRole()) })
	}
	return invalid("atomicity %v is not defined", r.GetAtomicity())
}

// writeAll attempts every update.
func (d *Device) writeAll(updates []*p4v1.Update, role string) error {
	var errs []error
	for i, u := range updates {
		if _, err := d.apply(u, role, false); err != nil {
			if errs == nil {
				errs = make([]error, len(updates))
			}
			errs[i] = err
		}
	}
	return BatchError("updates", errs)
}

// writeOrRollBack applies updates until one fails, and then reverts those before it.
func (d *Device) writeOrRollBack(updates []*p4v1.Update, role string) error {
	var undos []undo
	logged := len(d.log)
	for i, u := range updates {
		back, err := d.apply(u, role, true)
		if err == nil {
			undos = append(undos, back)
			continue
		}
		errs := make([]error, len(updates))
		for j := range errs {
			errs[j] = status.Errorf(codes.Aborted, "rolled back, for update %d failed", i)
		}
		errs[i] = err
		for j := len(undos) - 1; j >= 0; j-- {
			if undos[j] == nil {
				continue
			}
			if err := undos[j](); err != nil {
				errs[j] = status.Errorf(codes.DataLoss, "could not be rolled back: %v", err)
			}
		}
		d.log = d.log[:logged]
		return BatchError("updates", errs)
	}
	return nil
}

// apply applies one update. The undo reverts it; it is usable only with wantUndo.
func (d *Device) apply(u *p4v1.Update, role string, wantUndo bool) (undo, error) {
	kind := u.GetType()
	switch kind {
	case p4v1.Update_INSERT, p4v1.Update_MODIFY, p4v1.Update_DELETE:
	default:
		return nil, invalid("update type %v is not defined", kind)
	}
	back, err := d.applyEntity(kind, u.GetEntity(), role, wantUndo)
	if err != nil {
		return nil, err
	}
	if d.shadow {
		d.log = append(d.log, proto.Clone(u).(*p4v1.Update))
	}
	return back, nil
}

func (d *Device) applyEntity(kind p4v1.Update_Type, e *p4v1.Entity, role string, wantUndo bool) (undo, error) {
	switch e := e.GetEntity().(type) {
	case *p4v1.Entity_TableEntry:
		return d.writeEntry(kind, e.TableEntry, role, wantUndo)
	case *p4v1.Entity_ActionProfileMember:
		return d.writeMember(kind, e.ActionProfileMember, role, wantUndo)
	case *p4v1.Entity_ActionProfileGroup:
		return d.writeGroup(kind, e.ActionProfileGroup, role)
	case *p4v1.Entity_MeterEntry:
		return d.writeMeter(kind, e.MeterEntry, role)
	case *p4v1.Entity_DirectMeterEntry:
		return d.writeDirectMeter(kind, e.DirectMeterEntry, role)
	case *p4v1.Entity_CounterEntry:
		return d.writeCounter(kind, e.CounterEntry, role)
	case *p4v1.Entity_DirectCounterEntry:
		return d.writeDirectCounter(kind, e.DirectCounterEntry, role)
	case *p4v1.Entity_PacketReplicationEngineEntry:
		return d.writePRE(kind, e.PacketReplicationEngineEntry)
	case *p4v1.Entity_ValueSetEntry:
		return d.writeValueSet(kind, e.ValueSetEntry, role)
	case *p4v1.Entity_RegisterEntry:
		return d.writeRegister(kind, e.RegisterEntry, role, wantUndo)
	case *p4v1.Entity_DigestEntry:
		return d.writeDigest(kind, e.DigestEntry, role)
	case *p4v1.Entity_ExternEntry:
		return nil, unimplemented("v1model has no externs beyond those P4Runtime names")
	}
	return nil, invalid("the update has no entity")
}

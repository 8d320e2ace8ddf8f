// SPDX-License-Identifier: Apache-2.0

package p4rtserver_test

import (
	"runtime"
	"strings"
	"testing"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

func TestCapabilities(t *testing.T) {
	r := newRig(t, p4rtserver.Options{})
	for _, device := range []uint64{0, 1} {
		got, err := r.rpc.Capabilities(t.Context(), &p4v1.CapabilitiesRequest{DeviceId: device})
		if err != nil || got.GetP4RuntimeApiVersion() != "1.5.0" {
			t.Errorf("device %d: %v, %v", device, got, err)
		}
	}
	_, err := r.rpc.Capabilities(t.Context(), &p4v1.CapabilitiesRequest{DeviceId: 2})
	r.refused(err, codes.NotFound, "no device 2")
}

func TestArbitrationElects(t *testing.T) {
	r := newRig(t, p4rtserver.Options{})
	a := r.join("", 5)
	a.advised(codes.OK, 5)
	b := r.join("", 4)
	b.advised(codes.AlreadyExists, 5)
	never := r.join("")
	never.advised(codes.AlreadyExists, 5)

	c := r.join("", 6) // takes over: all other controllers are informed before the new primary
	a.advised(codes.AlreadyExists, 6)
	b.advised(codes.AlreadyExists, 6)
	never.advised(codes.AlreadyExists, 6)
	c.advised(codes.OK, 6)

	c.cancel() // the primary leaves: there is none, whoever else bid
	a.advised(codes.NotFound, 6)
	b.advised(codes.NotFound, 6)
	never.advised(codes.NotFound, 6)

	// below the highest ever seen: still a backup
	a.bid(&p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: id128(5)})
	a.advised(codes.NotFound, 6)
	b.bid(&p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: id128(6)}) // an id equal to the highest is elected
	a.advised(codes.AlreadyExists, 6)
	never.advised(codes.AlreadyExists, 6)
	b.advised(codes.OK, 6)

	b.bid(&p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: id128(2)}) // steps down: all are informed
	a.advised(codes.NotFound, 6)
	never.advised(codes.NotFound, 6)
	b.advised(codes.NotFound, 6)

	never.bid(&p4v1.MasterArbitrationUpdate{DeviceId: 1}) // an unset id is below all ids, also below {0, 0}
	never.advised(codes.NotFound, 6)
}

func TestArbitrationHighHalf(t *testing.T) {
	r := newRig(t, p4rtserver.Options{})
	low := r.open()
	low.bid(&p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: &p4v1.Uint128{Low: ^uint64(0)}})
	low.advised(codes.OK, ^uint64(0))
	high := r.open()
	high.bid(&p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: &p4v1.Uint128{High: 1}})
	if a := high.next().GetArbitration(); a.GetStatus().GetCode() != 0 || a.GetElectionId().GetHigh() != 1 {
		t.Errorf("received %v", a)
	}
	if a := low.next().GetArbitration(); codes.Code(a.GetStatus().GetCode()) != codes.AlreadyExists {
		t.Errorf("received %v", a)
	}
}

func TestArbitrationZeroIsAnID(t *testing.T) {
	r := newRig(t, p4rtserver.Options{})
	never := r.join("")
	never.advised(codes.NotFound, 0)
	c := r.open()
	c.bid(&p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: &p4v1.Uint128{}})
	if a := c.next().GetArbitration(); a.GetStatus().GetCode() != 0 || a.ElectionId == nil {
		t.Errorf("received %v", a)
	}
}

func TestArbitrationRoles(t *testing.T) {
	r := newRig(t, p4rtserver.Options{})
	a, b := r.join("", 5), r.join("telemetry", 5) // the same id in two roles
	a.advised(codes.OK, 5)
	b.advised(codes.OK, 5)
	c := r.join("telemetry", 6)
	b.advised(codes.AlreadyExists, 6)
	c.advised(codes.OK, 6)
	if len(a.in) != 0 {
		t.Error("a change in one role was sent to another")
	}
	_, err := r.rpc.Write(t.Context(), &p4v1.WriteRequest{DeviceId: 1, Role: "telemetry", ElectionId: id128(5)})
	r.refused(err, codes.PermissionDenied, "telemetry")
	_, err = r.rpc.Write(t.Context(), &p4v1.WriteRequest{DeviceId: 1, Role: "nobody", ElectionId: id128(5)})
	r.refused(err, codes.NotFound, `no role "nobody"`)
}

func TestArbitrationRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		first  bool // on a new stream, not on a live one
		update *p4v1.MasterArbitrationUpdate
		code   codes.Code
		says   string
	}{
		"unknown device": {true, &p4v1.MasterArbitrationUpdate{DeviceId: 2, ElectionId: id128(1)},
			codes.NotFound, "no device 2"},
		"device 0": {true, &p4v1.MasterArbitrationUpdate{ElectionId: id128(1)}, codes.NotFound,
			"no device 0"},
		"election id in use": {true, &p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: id128(9)},
			codes.InvalidArgument, "in use"},
		"role configuration": {true, &p4v1.MasterArbitrationUpdate{DeviceId: 1,
			Role: &p4v1.Role{Name: "x", Config: &anypb.Any{}}}, codes.InvalidArgument, "role configuration"},
		"another device later": {false, &p4v1.MasterArbitrationUpdate{DeviceId: 2, ElectionId: id128(1)},
			codes.FailedPrecondition, "device 1"},
		"another role later": {false, &p4v1.MasterArbitrationUpdate{DeviceId: 1,
			Role: &p4v1.Role{Name: "x"}}, codes.FailedPrecondition, `role ""`},
		"role configuration later": {false, &p4v1.MasterArbitrationUpdate{DeviceId: 1,
			Role: &p4v1.Role{Config: &anypb.Any{}}}, codes.InvalidArgument, "role configuration"},
		"election id of another, later": {false, &p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: id128(9)},
			codes.InvalidArgument, "in use"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, p4rtserver.Options{})
			nine := r.primary(9)
			c := r.open()
			if !tc.first {
				c = r.join("", 3)
				c.advised(codes.AlreadyExists, 9)
			}
			c.bid(tc.update)
			r.refused(c.ended(), tc.code, tc.says)
			if len(nine.in) != 0 {
				t.Error("the primary received it")
			}
		})
	}
	t.Run("an empty message", func(t *testing.T) {
		r := newRig(t, p4rtserver.Options{})
		c := r.open()
		c.send(&p4v1.StreamMessageRequest{})
		r.refused(c.ended(), codes.InvalidArgument, "without an update")
	})
	t.Run("the id is free again when its stream has ended", func(t *testing.T) {
		r := newRig(t, p4rtserver.Options{})
		a := r.primary(9)
		watch := r.join("")
		watch.advised(codes.AlreadyExists, 9)
		a.cancel()
		watch.advised(codes.NotFound, 9)
		r.primary(9)
	})
}

// A client that opens a thousand streams gets only as many as are allowed. All of them are free
// again when it disconnects.
func TestStreamsAreBounded(t *testing.T) {
	r := newRig(t, p4rtserver.Options{MaxStreams: 10})
	var cs []*controller
	for range 10 {
		cs = append(cs, r.join("", uint64(len(cs)+1)))
		cs[len(cs)-1].advised(codes.OK, uint64(len(cs)))
	}
	for range 100 {
		r.refused(r.open().ended(), codes.ResourceExhausted, "10 streams are open")
	}
	if st := r.srv.Stats(); st.Streams != 10 || st.StreamsRefused != 100 {
		t.Errorf("%+v", st)
	}
	cs[0].cancel()
	r.refused(cs[0].ended(), codes.Canceled, "")
	for r.srv.Stats().Streams == 10 { // the server notices in its own time
		runtime.Gosched()
	}
	r.join("", 20).advised(codes.OK, 20)
}

func TestWriteChecksSender(t *testing.T) {
	r := newRig(t, p4rtserver.Options{})
	write := func(device uint64, role string, id *p4v1.Uint128) error {
		_, err := r.rpc.Write(t.Context(), &p4v1.WriteRequest{DeviceId: device, Role: role, ElectionId: id})
		return err
	}
	r.refused(write(1, "", id128(5)), codes.PermissionDenied, "there is none")
	c := r.primary(5)
	r.refused(write(2, "", id128(5)), codes.NotFound, "no device 2")
	r.refused(write(1, "x", id128(5)), codes.NotFound, `no role "x"`)
	r.refused(write(1, "", id128(4)), codes.PermissionDenied, "not the primary's")
	r.refused(write(1, "", nil), codes.PermissionDenied, "no election id")
	r.refused(write(1, "", id128(5)), codes.FailedPrecondition, "no pipeline") // the checks come in this order
	_, err := r.tryRead(&p4v1.ReadRequest{DeviceId: 2})
	r.refused(err, codes.NotFound, "no device 2")
	_, err = r.tryRead(&p4v1.ReadRequest{DeviceId: 1})
	r.refused(err, codes.FailedPrecondition, "no pipeline")
	r.refused(r.set(p4v1.SetForwardingPipelineConfigRequest_VERIFY, id128(4), nil), codes.PermissionDenied,
		"not the primary's")
	c.cancel()
	if err := c.ended(); !strings.Contains(err.Error(), "canceled") {
		t.Errorf("%v", err)
	}
}

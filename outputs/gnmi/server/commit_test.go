// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	extpb "github.com/openconfig/gnmi/proto/gnmi_ext"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

func commitOf(c *extpb.Commit) []*extpb.Extension {
	return []*extpb.Extension{{Ext: &extpb.Extension_Commit{Commit: c}}}
}

func starts(id string, d time.Duration) []*extpb.Extension {
	return commitOf(&extpb.Commit{Id: id, Action: &extpb.Commit_Commit{Commit: &extpb.CommitRequest{
		RollbackDuration: durationpb.New(d)}}})
}

func confirms(id string) []*extpb.Extension {
	return commitOf(&extpb.Commit{Id: id, Action: &extpb.Commit_Confirm{Confirm: &extpb.CommitConfirm{}}})
}

func cancels(id string) []*extpb.Extension {
	return commitOf(&extpb.Commit{Id: id, Action: &extpb.Commit_Cancel{Cancel: &extpb.CommitCancel{}}})
}

// configured is a server with one value, mtu.
func configured(t *testing.T) (api gpb.GNMIClient, mtu func() uint64) {
	values := make(chan uint64, 1)
	values <- 1500
	mtu = func() uint64 { v := <-values; values <- v; return v }
	api = newFixture(t, func(o *Options) {
		o.Apply = func(_ context.Context, edits []Edit) error {
			for _, e := range edits {
				<-values
				values <- e.Value.(uint64)
			}
			return nil
		}
		o.Checkpoint = func() func() error {
			before := mtu()
			return func() error { <-values; values <- before; return nil }
		}
	}).dial()
	return api, mtu
}

// A Set with the extension commit is kept when it is confirmed, and taken back when it is cancelled
// or when its time is over. While such a Set is pending, any other Set is refused.
func TestCommit(t *testing.T) {
	api, mtu := configured(t)
	set := func(want codes.Code, ext []*extpb.Extension, value string) {
		t.Helper()
		req := &gpb.SetRequest{Extension: ext}
		if value != "" {
			req.Update = []*gpb.Update{update("/interfaces/interface[name=e1]/config/mtu", value)}
		}
		if _, err := api.Set(t.Context(), req); status.Code(err) != want {
			t.Errorf("Set %v: %v; expected %s", req, err, want)
		}
	}
	is := func(want uint64) {
		t.Helper()
		if v := mtu(); v != want {
			t.Errorf("the value is %d; expected %d", v, want)
		}
	}
	set(codes.FailedPrecondition, confirms("a"), "")
	set(codes.InvalidArgument, starts("", time.Hour), "9000")
	set(codes.InvalidArgument, starts("a", -time.Second), "9000")
	set(codes.OK, starts("a", time.Hour), "9000")
	is(9000)
	set(codes.FailedPrecondition, nil, "1501")
	set(codes.FailedPrecondition, starts("b", time.Hour), "1501")
	set(codes.InvalidArgument, confirms("b"), "")
	set(codes.InvalidArgument, confirms("a"), "1501")
	set(codes.InvalidArgument, commitOf(&extpb.Commit{Id: "a"}), "")
	is(9000)
	set(codes.OK, cancels("a"), "")
	is(1500)
	set(codes.OK, starts("a", time.Hour), "9000")
	set(codes.OK, confirms("a"), "")
	set(codes.FailedPrecondition, cancels("a"), "")
	is(9000)
	set(codes.OK, starts("c", time.Hour), "1400")
	is(1400)
	set(codes.OK, commitOf(&extpb.Commit{Id: "c", Action: &extpb.Commit_SetRollbackDuration{
		SetRollbackDuration: &extpb.CommitSetRollbackDuration{RollbackDuration: durationpb.New(time.Millisecond)}}}), "")
	testkit.Until(t, "the commit is taken back", func() bool { return mtu() == 9000 })
	set(codes.OK, nil, "1502")
	is(1502)
}

// A client with a lower election id than another one of its role cannot set; a client without the
// extension can.
func TestArbitration(t *testing.T) {
	api, _ := configured(t)
	for i, c := range []struct {
		role      string
		high, low uint64
		want      codes.Code
	}{
		{"", 0, 5, codes.OK}, {"", 0, 5, codes.OK}, {"", 0, 4, codes.PermissionDenied}, {"other", 0, 1, codes.OK},
		{"", 1, 0, codes.OK}, {"", 0, 6, codes.PermissionDenied},
	} {
		_, err := api.Set(t.Context(), &gpb.SetRequest{Extension: []*extpb.Extension{{
			Ext: &extpb.Extension_MasterArbitration{MasterArbitration: &extpb.MasterArbitration{
				Role: &extpb.Role{Id: c.role}, ElectionId: &extpb.Uint128{High: c.high, Low: c.low}}}}}})
		if status.Code(err) != c.want {
			t.Errorf("%d: %v; expected %s", i, err, c.want)
		}
	}
	if _, err := api.Set(t.Context(), &gpb.SetRequest{}); err != nil {
		t.Error(err)
	}
	_, err := api.Set(t.Context(), &gpb.SetRequest{Extension: []*extpb.Extension{{
		Ext: &extpb.Extension_MasterArbitration{MasterArbitration: &extpb.MasterArbitration{}}}}})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("without an id: %v", err)
	}
}

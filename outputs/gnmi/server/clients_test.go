// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	occlient "github.com/openconfig/gnmi/client"
	ocgnmi "github.com/openconfig/gnmi/client/gnmi"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/ygnmi/ygnmi"
	"github.com/openconfig/ygot/ytypes"

	"github.com/netsketch/netsketch/yang/bindings"
)

// TestOpenConfigClient reads with the library that gnmi_cli uses, without a target, as gnmi_cli
// does.
func TestOpenConfigClient(t *testing.T) {
	for _, typ := range []occlient.Type{occlient.Once, occlient.Poll, occlient.Stream} {
		t.Run(typ.String(), func(t *testing.T) {
			f := newFixture(t)
			f.publish(hitters(t, "s1 10.0.0.1 7"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var mu sync.Mutex
			var got []string
			again := false
			q := occlient.Query{
				Type: typ, Queries: []occlient.Path{{"univmon", "heavy-hitters", "heavy-hitter", "state", "packets"}},
				NotificationHandler: func(n occlient.Notification) error {
					mu.Lock()
					defer mu.Unlock()
					switch v := n.(type) {
					case occlient.Update:
						got = append(got, fmt.Sprint(strings.Join(v.Path, "/"), " ", v.Val))
						if again {
							cancel()
						}
					case occlient.Sync:
						got = append(got, "sync")
						if typ == occlient.Stream {
							again = true
							f.publish(hitters(t, "s1 10.0.0.1 8"))
						}
					}
					return nil
				},
			}
			impl, err := ocgnmi.NewFromConn(ctx, f.conn(), occlient.Destination{Addrs: []string{"server"}})
			if err != nil {
				t.Fatal(err)
			}
			defer impl.Close()
			if err := impl.Subscribe(ctx, q); err != nil {
				t.Fatal(err)
			}
			read := func() {
				for err = impl.Recv(); err == nil; err = impl.Recv() {
				}
				if !errors.Is(err, occlient.ErrStopReading) && ctx.Err() == nil {
					t.Fatal(err)
				}
			}
			read()
			if typ == occlient.Poll {
				if err := impl.Poll(); err != nil {
					t.Fatal(err)
				}
				read()
			}
			const row = "univmon/heavy-hitters/heavy-hitter/src/10.0.0.1/s1/state/packets"
			one := []string{row + " {Deprecated TypedValue_JsonVal 7}", "sync"}
			want := map[occlient.Type][]string{
				occlient.Once: one, occlient.Poll: append(one[:2:2], one...),
				occlient.Stream: append(one[:2:2], row+" {Deprecated TypedValue_JsonVal 8}"),
			}[typ]
			mu.Lock()
			defer mu.Unlock()
			for i := range got { // compares the values, because the library formats JSON differently
				got[i] = strings.NewReplacer("{Deprecated TypedValue_JsonVal ", "", "}", "").Replace(got[i])
			}
			for i := range want {
				want[i] = strings.NewReplacer("{Deprecated TypedValue_JsonVal ", "", "}", "").Replace(want[i])
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestYgnmi reads rows into the generated structs with ygnmi, which validates them against the
// schema.
func TestYgnmi(t *testing.T) {
	f := newFixture(t)
	f.publish(hitters(t, "s1 10.0.0.1 7", "s2 10.0.0.2 8"), summary(t, "s1", 3, 1000, 2.5))
	c, err := ygnmi.NewClient(gpb.NewGNMIClient(f.conn()), ygnmi.WithTarget("netsketch"))
	if err != nil {
		t.Fatal(err)
	}
	sch := func() *ytypes.Schema {
		s, err := bindings.Schema()
		if err != nil {
			t.Error(err)
		}
		return s
	}
	root := ygnmi.NewDeviceRootBase()
	hitter := ygnmi.NewWildcardQuery[*bindings.Univmon_HeavyHitter]("Univmon_HeavyHitter", true, false, false, false,
		true, false,
		ygnmi.NewNodePath([]string{"univmon", "heavy-hitters", "heavy-hitter"},
			map[string]any{"node": "*", "dimension": "*", "flow": "*"}, root),
		nil, nil, sch, nil, nil)
	for name, opts := range map[string][]ygnmi.Option{
		"Subscribe": nil, "Get": {ygnmi.WithUseGet()}, "JSON_IETF": {ygnmi.WithEncoding(gpb.Encoding_JSON_IETF)},
	} {
		t.Run(name, func(t *testing.T) {
			vals, err := ygnmi.LookupAll(t.Context(), c, hitter, opts...)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range vals {
				if v.ComplianceErrors != nil {
					t.Errorf("%v", v.ComplianceErrors)
				}
				if h, ok := v.Val(); ok {
					got = append(got, fmt.Sprint(*h.Node, " ", *h.Dimension, " ", *h.Flow, " ", *h.Packets))
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff([]string{"s1 src 10.0.0.1 7", "s2 src 10.0.0.2 8"}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/yang"
)

// TestMissedSummary sends two epochs to a client that is slow: the collector replaces the summary
// of the first epoch, which waits to be sent, by the second epoch's, and sends the second epoch's
// settled row behind it. The third epoch then replaces that row before changed has seen it.
func TestMissedSummary(t *testing.T) {
	var got []string
	rs := rows{}
	send := func(path string, epoch, duplicates int) {
		t.Helper()
		p, err := yang.ParsePath(path)
		if err != nil {
			t.Fatal(err)
		}
		value := &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(strconv.Quote(strconv.Itoa(epoch)))}
		update := &gpb.Update{Path: p, Duplicates: uint32(duplicates), Val: &gpb.TypedValue{Value: value}}
		changed := func(list string, r Row, missed int64) {
			if list == "/omnimon/settled" {
				got = append(got, fmt.Sprint(r.Number("epoch"), " ", missed))
			}
		}
		if err := rs.take(&gpb.Notification{Update: []*gpb.Update{update}}, changed); err != nil {
			t.Fatal(err)
		}
	}
	const settled, summary = "/omnimon/settled/state/last-epoch", "/omnimon/summary/state/last-epoch"
	send(settled, 1, 0)
	send(summary, 6, 1) // 5 was replaced by 6
	send(settled, 2, 0)
	send(settled, 3, 0)
	send(summary, 7, 0)
	if want := []string{"1 1", "3 0"}; !slices.Equal(got, want) {
		t.Errorf("settled epochs and missed values: %q, want %q", got, want)
	}
}

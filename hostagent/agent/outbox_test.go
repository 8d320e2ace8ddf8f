// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"testing"
)

// drain returns what the outbox sends now, one entry for each report, and fails if chunks do not
// fit together.
func drain(t *testing.T, o *outbox, most int) (sent []string) {
	t.Helper()
	var data []byte
	for range most {
		c := o.next()
		if c == nil {
			break
		}
		if c.GetOffset() != uint64(len(data)) || len(c.GetData()) > chunkBytes {
			t.Fatalf("a chunk of %d bytes at %d, expected one at %d", len(c.GetData()), c.GetOffset(), len(data))
		}
		if data = append(data, c.GetData()...); uint64(len(data)) == c.GetTotalBytes() {
			if crc32.Checksum(data, castagnoli) != c.GetChecksum() {
				t.Fatalf("epoch %d: wrong checksum", c.GetEpoch())
			}
			sent, data = append(sent, fmt.Sprintf("%s/%d:%d", c.GetRole(), c.GetEpoch(), len(data))), nil
		}
	}
	return sent
}

// The newest report is sent first, a report that has begun is finished, and a new session begins
// all reports anew.
func TestOutboxOrder(t *testing.T) {
	o := outbox{limit: 1 << 20}
	large := bytes.Repeat([]byte("x"), 2*chunkBytes+1)
	o.put(1, "r", 0, large, 0)
	if c := o.next(); c.GetEpoch() != 1 || len(c.GetData()) != chunkBytes {
		t.Fatalf("first chunk %d", c.GetEpoch())
	}
	o.put(2, "r", 0, []byte("two"), 0)
	o.put(3, "r", 0, nil, 0)
	if c := o.next(); c.GetEpoch() != 1 || c.GetOffset() != chunkBytes {
		t.Errorf("a report of epoch %d comes between the chunks of another", c.GetEpoch())
	}
	o.restart(100)
	want := fmt.Sprintf("[r/3:0 r/2:3 r/1:%d]", len(large))
	if got := fmt.Sprint(drain(t, &o, 100)); got != want {
		t.Errorf("sent %s; want %s", got, want)
	}
	if got := drain(t, &o, 100); len(got) > 0 {
		t.Errorf("%s is sent twice", got)
	}
	if !o.again(2, "r") || o.again(2, "other") {
		t.Error("a report is found by epoch and role")
	}
	if got := fmt.Sprint(drain(t, &o, 100)); got != "[r/2:3]" {
		t.Errorf("sent %s again; want epoch 2", got)
	}
	if limit, over := o.tooLarge(101); limit != 100 || !over {
		t.Errorf("limit %d, %v", limit, over)
	}
	for e := uint64(1); e <= 3; e++ {
		if !o.remove(e, "r", 0) || o.remove(e, "r", 0) {
			t.Errorf("epoch %d is not removed once", e)
		}
	}
	if n, dropped := o.stats(); n != 0 || dropped != 0 {
		t.Errorf("%d bytes, %d dropped", n, dropped)
	}
}

// The outbox sends the report of the epoch that is over, with its parts, before parts of the open
// epoch.
func TestOutboxParts(t *testing.T) {
	o := outbox{limit: 1 << 20}
	o.put(1, "r", 0, []byte("a"), 0)
	o.put(2, "r", 1, []byte("bb"), 0)
	o.put(2, "r", 2, []byte("ccc"), 0)
	o.put(3, "r", 3, []byte("dddd"), 0)
	o.put(2, "r", 0, []byte("eeeee"), 0)
	for range 2 { // a new session
		if got := fmt.Sprint(drain(t, &o, 100)); got != "[r/2:2 r/2:3 r/2:5 r/1:1 r/3:4]" {
			t.Errorf("sent %s", got)
		}
		o.restart(100)
	}
	if !o.remove(2, "r", 2) || o.remove(2, "r", 2) || !o.remove(2, "r", 0) {
		t.Error("a part is not removed once")
	}
	if got := fmt.Sprint(drain(t, &o, 100)); got != "[r/2:2 r/1:1 r/3:4]" {
		t.Errorf("sent %s", got)
	}
}

// Beyond its limit the outbox drops the oldest reports and counts them. It keeps the newest report,
// and the one in transmission.
func TestOutboxIsBounded(t *testing.T) {
	o := outbox{limit: 3 * chunkBytes}
	o.put(1, "r", 0, make([]byte, 2*chunkBytes), 0)
	o.next()
	for e := uint64(2); e <= 6; e++ {
		o.put(e, "r", 0, make([]byte, chunkBytes), 0)
		if n, _ := o.stats(); n > o.limit {
			t.Errorf("%d bytes after epoch %d, the limit is %d", n, e, o.limit)
		}
	}
	if n, dropped := o.stats(); n != o.limit || dropped != 4 {
		t.Errorf("%d bytes, %d dropped; want %d, 4", n, dropped, o.limit)
	}
	o.remove(1, "r", 0)
	o.put(7, "r", 0, make([]byte, 10*chunkBytes), 0) // by itself above the limit: it is kept, alone
	if n, dropped := o.stats(); n != 10*chunkBytes || dropped != 5 {
		t.Errorf("%d bytes, %d dropped", n, dropped)
	}
	if got := fmt.Sprint(drain(t, &o, 100)); got != fmt.Sprintf("[r/7:%d]", 10*chunkBytes) {
		t.Errorf("sent %s", got)
	}
}

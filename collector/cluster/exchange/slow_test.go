// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/netsketch/netsketch/collector/cluster/codec"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// A part that is larger than its limit is refused by its home, with the reason in both logs, and
// the epoch lacks its sources. The next part is accepted.
func TestPartOverTheLimit(t *testing.T) {
	server := bustest.Server(t)
	a, b := start(t, server, "a"), start(t, server, "b", func(c *Config) { c.MaxPart = 4 << 20 })
	large := measured(1)
	large.Sources[0].Reading.Objects[0] = sdk.CellsOf("r1", slices.Repeat([]uint32{1}, 3<<19))
	large.Sources[1].Reading.Hosts[0].Data = make([]byte, 2<<20) // 8 MiB together
	b.inbox.begin(1)
	a.HandOver(large)
	testkit.Until(t, "refusal", func() bool { return a.Stats().PartsFailed == 1 && b.Stats().PartsRefused == 1 })
	for name, m := range map[string]*member{"a": a, "b": b} {
		if !strings.Contains(m.log.String(), sdk.ErrEpochTooLarge.Error()+" (4194304 bytes)") {
			t.Errorf("the log of %s does not have the limit:\n%s", name, m.log)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.collect(over, deviceA, false, 1); !errors.Is(err, epoch.ErrLate) {
		t.Errorf("the device of a refused part: %v", err)
	}
	a.HandOver(measured(2))
	if got, err := b.collect(t.Context(), deviceA, false, 2); err != nil || got.Reading.Objects[0].At(0) != 2 {
		t.Errorf("the next part: %+v, error %v", got, err)
	}
	testkit.Until(t, "acknowledgement", func() bool { return a.Stats().PartsSent == 1 })
	want := Stats{PartsReceived: 1, PartsRefused: 1}
	have := b.Stats()
	if have.PartBytesReceived = 0; have != want {
		t.Errorf("counted %+v, want %+v", have, want)
	}
}

// A part that is larger than its sender's limit is not sent; the log counts this and names the
// largest source. The next part is sent.
func TestPartOverTheLimitOfItsSender(t *testing.T) {
	server := bustest.Server(t)
	a, b := start(t, server, "a", func(c *Config) { c.MaxPart = 4 << 20 }), start(t, server, "b")
	large := measured(1)
	large.Sources[0].Reading.Objects[0] = sdk.CellsOf("r1", slices.Repeat([]uint32{1}, 1<<20+1))
	b.inbox.begin(1)
	a.HandOver(large)
	testkit.Until(t, "a log line with the largest source", func() bool {
		return strings.Contains(a.log.String(), "of which "+deviceA+" has 4194308;")
	})
	if n := a.Stats(); n.PartBytesSent > 0 || n.PartsFailed != 1 {
		t.Errorf("counted %+v, want one failed part and no byte sent", n)
	}
	a.HandOver(measured(2))
	if got, err := b.collect(t.Context(), deviceA, false, 2); err != nil || got.Reading.Objects[0].At(0) != 2 {
		t.Errorf("the next part: %+v, error %v", got, err)
	}
	testkit.Until(t, "acknowledgement", func() bool { return a.Stats().PartsSent == 1 })
}

// A member sends slowly, so the epoch is partial. Its data that arrives after the delivery is
// counted as late and not used, but its reports of hosts are delivered with the next epoch.
func TestSlowSender(t *testing.T) {
	b := start(t, bustest.Server(t), "b")
	slow := measured(1)
	slow.Sources[0].Reading.Objects[0] = sdk.CellsOf("r1", slices.Repeat([]uint32{1}, codec.ChunkBytes/2))
	var chunks []*nats.Msg
	out := codec.NewChunker("a", 1, func(chunk []byte, _ bool) error {
		chunks = append(chunks, &nats.Msg{Subject: b.deps.Bus.Subject("part", "b"), Data: slices.Clone(chunk)})
		return nil
	})
	err := errors.Join(codec.WritePart(out, slow, 7, 1<<30, func(string, string) bool { return true }), out.Close())
	if err != nil || len(chunks) < 2 {
		t.Fatalf("%d chunks, error %v", len(chunks), err)
	}
	send := func(m *nats.Msg) string {
		t.Helper()
		reply, err := b.deps.Bus.Conn().RequestMsg(m, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return string(reply.Data)
	}
	for _, m := range chunks[:len(chunks)-1] {
		if got := send(m); got != proceed {
			t.Fatalf("reply %q", got)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel() // ends the epoch, as the deadline would
	for name, host := range map[string]bool{deviceA: false, hostA: true} {
		if _, err := b.collect(over, name, host, 1); !errors.Is(err, epoch.ErrLate) {
			t.Errorf("%s, before the part is complete: %v", name, err)
		}
	}
	if got := send(chunks[len(chunks)-1]); got != refusals[tooLate] {
		t.Errorf("the last chunk after the delivery: reply %q", got)
	}
	if got := b.request(t, "a", 2, 7, measured(2)); got != accept {
		t.Errorf("the next part: reply %q", got)
	}
	got, err := b.collect(t.Context(), deviceA, false, 2)
	if err != nil || got.Reading.Objects[0].At(0) != 2 {
		t.Errorf("device: %+v, error %v", got, err)
	}
	if late := b.takeLate(); len(late) != 1 || late[0].Epoch != 1 || late[0].Host != hostA {
		t.Errorf("late reports %+v; want that of epoch 1 only", late)
	}
	if n := b.Stats(); n.PartsReceived != 1 || n.PartsLate != 1 || n.SourcesDropped != 0 || n.PartsRefused != 0 {
		t.Errorf("counted %+v", n)
	}
}

// A home does not answer. Two epochs wait to be sent, and further ones are dropped, counted and
// named. When the home answers again, the waiting epochs are sent.
func TestSlowHome(t *testing.T) {
	server := bustest.Server(t)
	a := start(t, server, "a")
	home := bustest.Connect(t, "fabric", "b", server)
	sub, err := home.Conn().SubscribeSync(home.Subject("part", "b"))
	if err == nil {
		err = home.Conn().Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	next := func() *nats.Msg {
		t.Helper()
		m, err := sub.NextMsg(20 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a.HandOver(measured(1))
	waiting := next()
	for number := uint64(2); number <= 5; number++ {
		a.HandOver(measured(number))
	}
	if n := a.Stats(); n.PartsFailed != 2 || n.PartsSent != 0 {
		t.Errorf("counted %+v, want two parts that are dropped", n)
	}
	if !strings.Contains(a.log.String(), "the one before is still being sent") {
		t.Errorf("the log has no reason:\n%s", a.log)
	}
	for sent := uint64(1); sent <= 3; sent++ {
		if err := waiting.Respond([]byte(accept)); err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, "the part is sent", func() bool { return a.Stats().PartsSent == sent })
		if sent < 3 {
			waiting = next()
		}
	}
	if n := a.Stats(); n.PartsFailed != 2 {
		t.Errorf("counted %+v", n)
	}
}

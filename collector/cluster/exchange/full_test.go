// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Messages that do not fit into JetStream are counted and named, and everything else continues.
// Later messages that fit are stored.
func TestFullStreams(t *testing.T) {
	small := func(c *Config) { c.MaxResults = 300_000 }
	server := bustest.Server(t)
	a, b := start(t, server, "a", small), start(t, server, "b", small)
	keep := func(epoch uint64, size int) {
		a.Keep("p", "plugin", &sdk.State{Epoch: epoch, Data: bytes.Repeat([]byte("s"), size)})
	}
	stored := func(epoch uint64) {
		t.Helper()
		testkit.Until(t, fmt.Sprint("state of epoch ", epoch), func() bool {
			s := b.State(t.Context(), "p", "plugin")
			return s != nil && s.Epoch == epoch
		})
	}
	served := func(epoch uint64) {
		t.Helper()
		testkit.Until(t, fmt.Sprint("results of epoch ", epoch), func() bool {
			newest, _ := b.epochOf()
			return newest == epoch
		})
	}
	keep(1, 100_000)
	stored(1)
	a.publish(t, 1, 1)
	served(1)

	keep(2, 400_000)
	testkit.Until(t, "the state is refused", func() bool { return a.Stats().StatesFailed == 1 })
	if err := a.store.Publish(batch(t, 2, 60_000)); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the results are refused", func() bool { return a.Stats().BatchesFailed == 1 })
	for _, want := range []string{"states of plugins are not exchanged\" error=\"plugin p: ", "maximum bytes exceeded",
		"results are not exchanged\" error=\"results of epoch 2 have "} {
		testkit.Until(t, "the log has "+want, func() bool { return strings.Contains(a.log.String(), want) })
	}
	if newest, rows := a.epochOf(); newest != 2 || rows != 60_000 {
		t.Errorf("the collector itself serves %d rows of epoch %d", rows, newest)
	}
	stored(1)

	a.publish(t, 3, 2)
	served(3)
	keep(3, 50_000)
	stored(3)
	for _, what := range []string{"states of plugins", "results"} {
		testkit.Until(t, what, func() bool { return strings.Contains(a.log.String(), what+" are exchanged again") })
	}
}

// SPDX-License-Identifier: Apache-2.0

package attention

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/figures/suite/suitetest"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil { // where the command runs
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func TestPages(t *testing.T) { suitetest.Pages(t, Paper().Suites, Paper().Command) }

func TestClaims(t *testing.T) { suitetest.Claims(t, Paper().Suites) }

// one is a distribution of flows of one packet.
var one = []traffic.SizePoint{{Packets: 1, Share: 1}}

// victimResults are results with a list of victims: flow, lost packets, exact, kind.
func victimResults(t *testing.T, rows [][4]string) *sdk.Results {
	t.Helper()
	b := table.NewBuilder(chamelemon.VictimList)
	flows, lost, quality, kind := b.TextKey("flow"), b.Int("state/lost-packets"), b.Text("state/quality"),
		b.Text("state/kind")
	for _, r := range rows {
		flows.Append(r[0])
		lost.Append(int64(r[1][0] - '0'))
		quality.Append(map[string]string{"true": "EXACT", "false": "LOWER_BOUND"}[r[2]])
		kind.Append(r[3])
	}
	built, err := b.Table()
	if err != nil {
		t.Fatal(err)
	}
	out := &sdk.Results{}
	out.Add(built, nil)
	return out
}

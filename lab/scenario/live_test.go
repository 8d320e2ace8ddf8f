// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

// The flow of a socket on the loopback interface is among the results, and each packet is counted
// once.
func TestLive(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("reading the packets of an interface needs Linux and root")
	}
	if _, err := scenario.OpenLive(t.Context(), scenario.LiveOptions{Interface: "no-such-if0"}); err == nil ||
		!strings.Contains(err.Error(), "no-such-if0") {
		t.Errorf("an interface that does not exist: %v", err)
	}
	to, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	from, err := net.Dial("udp4", to.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	flow := fmt.Sprintf("127.0.0.1,127.0.0.1,udp,%d,%d", from.LocalAddr().(*net.UDPAddr).Port,
		to.LocalAddr().(*net.UDPAddr).Port)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sent, counted := 0, 0.0
	live, err := scenario.OpenLive(ctx, scenario.LiveOptions{Interface: "lo", PluginDir: plugins, Listen: "127.0.0.1:0",
		OnEpoch: func(l *scenario.Live) error {
			rows := l.Report().Epochs[0].Results["heavy-hitter"][score.View{Device: "lo", Dimension: "5-tuple"}]
			if counted = rows[flow].Value("packets"); counted > 0 {
				cancel()
				return nil
			}
			for range 500 {
				if _, err := from.Write([]byte("x")); err != nil {
					return err
				}
				sent++
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	report, err := live.Play(ctx)
	if err = errors.Join(err, live.Close()); err != nil {
		t.Fatal(err)
	}
	if counted == 0 || counted > float64(sent) {
		t.Errorf("%v packets of %d counted; newest epoch: %v", counted, sent, report.Epochs)
	}
}

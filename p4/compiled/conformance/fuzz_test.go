// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/p4/compiled"
)

// FuzzFrames: every program on the soft switch forwards or drops any frame as the model does, and
// writes the same bytes. The seeds are the frames of the conformance tests: carriers of OmniMon's
// header, tunnels, and frames with a fault.
func FuzzFrames(f *testing.F) {
	header := func() omHeader { return someHeader }
	for i, frame := range append(ofHosts.carrierFrames(header), tunnelFrames()...) {
		if i%7 == 0 {
			f.Add(uint8(i), frame)
		}
	}
	for _, frame := range append(oddFrames(), encapsulatedFrames()...) {
		f.Add(uint8(len(frame)), frame)
	}
	names := compiled.Names()
	var switches []*soft
	var benches []*bench
	for _, name := range names {
		sw := startSoft(f)
		b := newBench(f, load(f, name), sw)
		b.install()
		switches, benches = append(switches, sw), append(benches, b)
	}
	f.Fuzz(func(t *testing.T, which uint8, frame []byte) {
		if len(frame) > 9000 {
			return
		}
		n := int(which) % len(names)
		sw, b := switches[n], benches[n]
		port, want, forwarded := b.expect(frame)
		if p := parse(frame); strings.HasPrefix(names[n], "sketchint") && p.counted && p.tos>>2 == intDSCP {
			return // the switch is a transit of INT, which has tests of its own
		}
		sw.sw.Inject(1, frame, 0)
		if !forwarded || port == cpuPort {
			if len(sw.out) > 0 {
				t.Fatalf("%s: the frame left by port %d", names[n], (<-sw.out).port)
			}
			return
		}
		if len(sw.out) == 0 {
			t.Fatalf("%s: no frame left; want % x by port %d", names[n], want, port)
		}
		got := <-sw.out
		if got.port != port || !bytes.Equal(got.frame, want) {
			t.Fatalf("%s: left by port %d as\n% x, want by port %d\n% x", names[n], got.port, got.frame, port, want)
		}
	})
}

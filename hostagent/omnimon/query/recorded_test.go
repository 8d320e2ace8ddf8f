// SPDX-License-Identifier: Apache-2.0

package query

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/sketch/flow"
)

// TestRecorded: a plan that the volumes of flows answer has the same result as from packets, and
// other plans say so.
func TestRecorded(t *testing.T) {
	const f = "x = packets"
	r := rand.New(rand.NewPCG(3, 4))
	var packets []Tuple
	volumes := map[flow.Key]Volume{}
	for range 500 {
		k := flow.Key{Mask: flow.FiveTuple, Proto: uint8(6 + r.IntN(2)), SrcPort: uint16(r.IntN(3))}
		k.DstPort = uint16(r.IntN(2))
		k.Src, k.Dst = [16]byte{10, 0, 0, byte(r.IntN(4))}, [16]byte{10, 0, 1, byte(r.IntN(4))}
		v := Volume{Key: k, Packets: 1, Bytes: int64(40 + r.IntN(1400))}
		packet := v.tuple()
		for i, name := range packetFields {
			if i > keyFields && name.Type == Integer {
				packet[i].Int = int64(r.IntN(100))
			}
		}
		packets = append(packets, packet)
		sum := volumes[k]
		volumes[k] = Volume{k, sum.Packets + 1, sum.Bytes + v.Bytes}
	}
	var all []Volume
	for _, v := range volumes {
		all = append(all, v)
	}
	all = append(all, Volume{Key: flow.Key{Mask: flow.FiveTuple, Proto: 6, Src: [16]byte{10, 9}, Dst: [16]byte{10, 8}}})
	if a := all[0].tuple()[0].Address; !a.Is4() || !netip.MustParsePrefix("10.0.0.0/16").Contains(a) {
		t.Fatalf("source %v", a)
	}
	for text, want := range map[string]bool{
		f + ".reduce(keys=(dst), n=count(), bytes=sum(length))": true,
		f + ".filter(proto == TCP && !(sport == 1)).map(d = dst, l = length, two = 2)" +
			".reduce(keys=(d), n=sum(two), b=sum(l))": true,
		f + ".distinct(src, dst).map(src, n = 1).reduce(keys=(src), n=sum(n))": true,
		f + ".distinct(dst, dport)": true,
		"a = packets.reduce(keys=(dst), n=count())\nb = packets.distinct(dst, src).reduce(keys=(dst), m=count())\n" +
			"x = a.join(b, keys=(dst)).filter(n > 2 * m)": true,
		f + ".filter(length > 100).reduce(keys=(dst), n=count())":     false,
		f + ".filter((flags & 2) == 2).reduce(keys=(dst), n=count())": false,
		f + ".reduce(keys=(ttl), n=count())":                          false,
		f + ".reduce(keys=(dst), n=max(length))":                      false,
		f + ".reduce(keys=(dst), n=sum(window))":                      false,
		f + ".map(dst, l = length / 2).reduce(keys=(dst), n=sum(l))":  false,
		f + ".distinct(dst, length)":                                  false,
		"a = packets.reduce(keys=(dst), n=count())\nb = packets.reduce(keys=(dst), m=sum(ttl))\n" +
			"x = a.join(b, keys=(dst))": false,
		"x = losses.reduce(keys=(dst), n=sum(lost))": false,
	} {
		q, err := Parse("q", text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		plan := q.Place()
		if got := plan.Recorded(); got != want {
			t.Errorf("%s: recorded %v, want %v", text, got, want)
		}
		if !plan.Recorded() {
			continue
		}
		got, _ := plan.Finish(plan.OfVolumes(all), nil)
		if want, _ := q.Run(Streams{Packets: packets}); !slices.EqualFunc(got, want, slices.Equal[Tuple]) || len(got) == 0 {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"hash/fnv"
	"math"
)

// The keys by which members own devices, hosts and plugins.
func deviceKey(name string) string { return "device/" + name }
func hostKey(name string) string   { return "host/" + name }
func pluginKey(name string) string { return "plugin/" + name }

// Owner returns the name of the member with the highest score of weighted rendezvous hashing for a
// key, "" if no member is active. When a member leaves, only its own keys move. Each member owns a
// share of all keys in proportion to its weight. The order of members does not matter. Members that
// do not take part (Member.Active) own nothing.
func Owner(key string, members []Member) string {
	owner, best := "", math.Inf(-1)
	for _, m := range members {
		if !m.Active() {
			continue
		}
		if s := score(key, m); s > best || s == best && m.Name < owner {
			owner, best = m.Name, s
		}
	}
	return owner
}

// score is -weight / ln(h), with h the hash of member and key in (0, 1).
func score(key string, m Member) float64 {
	f := fnv.New64a()
	_, _ = f.Write([]byte(m.Name))
	_, _ = f.Write([]byte{0})
	_, _ = f.Write([]byte(key))
	// FNV leaves the high bits of short texts alike: the finalizer of SplitMix64 spreads them.
	x := f.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	h := (float64(x>>11) + 0.5) / (1 << 53)
	return -float64(m.Weight) / math.Log(h)
}

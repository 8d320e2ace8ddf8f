// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/pcapfile"
	groundtruth "github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// timedKey is the 5-tuple of a packet and the time since the first packet of the trace.
type timedKey struct {
	At  time.Duration
	Key flow.Key
}

// realPackets returns the packets with a 5-tuple of the trace of real traffic. It skips the test if
// the trace is not there: NETSKETCH_TRACE names it, or it lies beside the repository.
func realPackets(tb testing.TB) (packets []timedKey) {
	tb.Helper()
	file, err := pcapfile.Open(cmp.Or(os.Getenv("NETSKETCH_TRACE"), "../../../shared/traces/mixed-165k.pcap.gz"))
	if errors.Is(err, fs.ErrNotExist) {
		tb.Skipf("the shared trace is not here: %v", err)
	}
	if err != nil {
		tb.Fatal(err)
	}

	start, total := time.Time{}, 0
	for ; ; total++ {
		p, err := file.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			tb.Fatal(err)
		}
		if total == 0 {
			start = p.Date
		}
		if k, ok := groundtruth.Parse(p.Frame); ok {
			packets = append(packets, timedKey{At: p.Date.Sub(start), Key: k})
		}
	}
	if total != 164_600 {
		tb.Fatalf("%d packets; the description of the trace says 164,600", total)
	}
	return packets
}

// zipfPackets returns packets of flows whose sizes follow Zipf's law: the flow of rank r has
// a share proportional to r^-skew of the packets. Addresses and ports are random, one
// flow in five is IPv6. The same arguments give the same packets.
func zipfPackets(seed uint64, packets, ranks int, skew float64) []timedKey {
	r := rand.New(rand.NewPCG(seed, 0x7a697066))
	keys := make([]flow.Key, ranks)
	sum := make([]float64, ranks)
	total := 0.0
	for i := range keys {
		keys[i] = randomKey(r)
		total += math.Pow(float64(i+1), -skew)
		sum[i] = total
	}
	out := make([]timedKey, packets)
	for i := range out {
		u := r.Float64() * total
		lo, hi := 0, ranks-1
		for lo < hi {
			if mid := (lo + hi) / 2; sum[mid] < u {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		out[i] = timedKey{At: time.Second * time.Duration(i) / time.Duration(packets), Key: keys[lo]}
	}
	return out
}

func randomKey(r *rand.Rand) flow.Key {
	addr := func() netip.Addr { return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, r.Uint32()))) }
	if r.IntN(5) == 0 {
		addr = func() netip.Addr {
			var a [16]byte
			binary.BigEndian.PutUint64(a[:], 0x2001_0db8_0000_0000|uint64(r.Uint32()))
			binary.BigEndian.PutUint64(a[8:], r.Uint64())
			return netip.AddrFrom16(a)
		}
	}
	proto := uint8(6)
	if r.IntN(3) == 0 {
		proto = 17
	}
	k, err := flow.New(addr(), addr(), proto, uint16(r.Uint32()), uint16(r.Uint32()))
	if err != nil {
		panic(err) // both addresses come from the same generator
	}
	return k
}

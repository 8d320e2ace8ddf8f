// SPDX-License-Identifier: Apache-2.0

package sketch_test

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/fermat"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/tower"
	"github.com/netsketch/netsketch/sketch/universal"
)

// keyOf returns the canonical bytes of a TCP flow from a client to port 443 of one server.
func keyOf(client byte) []byte {
	return must(flow.New(netip.AddrFrom4([4]byte{10, 0, 0, client}), netip.AddrFrom4([4]byte{192, 0, 2, 1}), 6, 50_000,
		443)).AppendBinary(nil)
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// Flow sizes are sent to another place and added up there.
func Example() {
	config := tower.Config{Memory: 600_000, Seed: 7}
	here, there := must(tower.New[family.Fast](config)), must(tower.New[family.Fast](config))
	for range 1000 {
		here.Insert(keyOf(1))
	}
	there.Insert(keyOf(1))
	there.Insert(keyOf(2))

	received := must(tower.New[family.Fast](config))
	if err := received.UnmarshalBinary(must(there.MarshalBinary())); err != nil {
		panic(err)
	}
	if err := here.Merge(received); err != nil {
		panic(err)
	}
	fmt.Println(here.Query(keyOf(1)), here.Query(keyOf(2)))
	// Output: 1001 1
}

// Two cores fill one tower without locks.
func Example_cores() {
	shared := must(tower.NewShared[family.Fast](tower.Config{Memory: 600_000}))
	var cores sync.WaitGroup
	for range 2 {
		cores.Go(func() {
			w := shared.Writer()
			defer w.Flush()
			for range 5000 {
				w.Insert(keyOf(1))
			}
		})
	}
	cores.Wait()
	fmt.Println(shared.Seal().Query(keyOf(1)))
	// Output: 10000
}

// Lost packets are the difference of entered and left packets, decoded to flows.
func Example_losses() {
	config := fermat.Config{Width: 100, KeyBytes: 13}
	in, out := must(fermat.New[family.Fast, fermat.Mersenne61](config)),
		must(fermat.New[family.Fast, fermat.Mersenne61](config))
	for client := range byte(200) {
		_ = in.Add(keyOf(client), 50)
		if client == 17 {
			_ = out.Add(keyOf(client), 47)
		} else {
			_ = out.Add(keyOf(client), 50)
		}
	}
	if err := in.Subtract(out); err != nil {
		panic(err)
	}
	lost := must(in.Decode())
	for _, f := range lost.Flows {
		fmt.Println(must(flow.ParseBinary(flow.FiveTuple, f.Key)), "lost", f.Count, "exact", f.Exact)
	}
	fmt.Println("all of them:", lost.Complete)
	// Output:
	// 10.0.0.17,192.0.2.1,tcp,50000,443 lost 3 exact true
	// all of them: true
}

// One universal sketch answers many questions. There are 99 flows; the number of flows and the
// entropy are estimates.
func Example_universal() {
	s := must(universal.New(must(universal.Fit(flow.FiveTuple, 300_000))))
	for client := range byte(100) {
		for range 10 * int(client) {
			if err := s.Insert(keyOf(client)); err != nil {
				panic(err)
			}
		}
	}
	e := s.Reading().Estimate()
	packets, exact := e.Packets()
	fmt.Printf("%.0f packets (exact %v), %.0f flows, %.2f bits\n", packets, exact, e.Distinct(), e.Entropy())
	for _, f := range e.Above(980) {
		fmt.Printf("%v %.0f\n", f.Key, f.Packets)
	}
	// Output:
	// 49500 packets (exact true), 99 flows, 6.36 bits
	// 10.0.0.99,192.0.2.1,tcp,50000,443 990
	// 10.0.0.98,192.0.2.1,tcp,50000,443 980
}

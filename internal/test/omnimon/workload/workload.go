// SPDX-License-Identifier: Apache-2.0

// Package workload makes traffic with the anomalies that the example queries of OmniMon look for,
// and computes their results in Go, without the query language.
package workload

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// FlowletGap is the longest time between two packets of a flowlet.
const FlowletGap = 500 * time.Microsecond

// Packet is one packet.
type Packet struct {
	Src, Dst                string
	Proto, SrcPort, DstPort int64
	Length                  int64 // length of the IP packet
	Flags                   int64 // flags of TCP
	DNSType, Response       int64
	Queue                   int64 // queue depth, which only switches know
	Payload                 string
	Sent                    time.Duration // since the first packet
	Flowlet                 int64         // number of the flowlet, which follows from Sent
}

func (p Packet) flow() string {
	return fmt.Sprintf("%s %s %d %d %d", p.Src, p.Dst, p.Proto, p.SrcPort, p.DstPort)
}

// Traffic is background traffic of flows between hosts, with every anomaly that the example queries
// look for.
func Traffic(background, flows, hosts int) (packets []Packet) {
	var now time.Duration
	r := rand.New(rand.NewPCG(8, 8))
	host := func(n int) string { return fmt.Sprintf("10.0.%d.%d", n/200, n%200+1) }
	keys := make([]Packet, flows)
	for i := range keys {
		keys[i] = Packet{Src: host(r.IntN(hosts)), Dst: host(r.IntN(hosts)), Proto: []int64{6, 6, 17}[r.IntN(3)],
			SrcPort: 1000 + r.Int64N(50_000), DstPort: []int64{80, 443, 53}[r.IntN(3)]}
	}
	for range background {
		p := keys[r.IntN(flows)]
		p.Length = 40 + r.Int64N(1400)
		now += time.Duration(50 + 50*r.Int64N(3)) // so that flows have pauses, which the tests measure
		p.Sent, p.Queue = now, r.Int64N(49)
		if p.Proto == 6 {
			p.Flags = []int64{2, 18, 16, 16, 16, 24, 17}[r.IntN(7)]
		}
		packets = append(packets, p)
	}
	add := func(n int, make func(i int) Packet) {
		for i := range n {
			p := make(i)
			now += 20 * time.Microsecond
			p.Sent = now
			packets = append(packets, p)
		}
	}
	tcp := func(src, dst string, sport, dport, length, flags int64) Packet {
		return Packet{Src: src, Dst: dst, Proto: 6, SrcPort: sport, DstPort: dport, Length: length, Flags: flags}
	}
	add(90, func(i int) Packet {
		return tcp(host(300+i), "10.9.0.1", 5000, 80, 40, 2)
	}) // new connections, SYN flood
	// answers of the addressed hosts
	add(90, func(i int) Packet { return tcp("10.9.0.1", host(300+i), 80, 5000, 40, 18) })
	add(3, func(i int) Packet { return tcp(host(300+i), "10.9.0.1", 5000, 80, 40, 16) })       // few complete
	add(2, func(i int) Packet { return tcp(host(300+i), "10.9.0.1", 5000, 80, 40, 17) })       // fewer end
	add(70, func(i int) Packet { return tcp(host(500+i), "10.9.0.2", 22, 22, 120, 24) })       // SSH
	add(80, func(i int) Packet { return tcp("10.9.0.3", "10.9.0.4", 999, int64(i+1), 40, 2) }) // port scan
	add(60, func(i int) Packet { return tcp(host(700), "10.9.0.5", int64(i), 80, 44, 24) })    // slowloris
	add(50, func(i int) Packet { return tcp(host(800), "10.9.0.6", 7, 23, 52, 24) })           // telnet probes
	add(70, func(i int) Packet { return tcp(host(801), "10.9.0.7", 7, 23, 52, 24) })           // without command
	add(30, func(i int) Packet { return tcp(host(900+i), "10.9.0.8", 7, 80, 40, []int64{2, 17}[i%2]) })
	add(60, func(i int) Packet { return tcp(host(900+i/2), "10.9.0.9", 7, 80, 40, []int64{2, 17}[i%2]) })
	add(1, func(int) Packet { p := tcp(host(800), "10.9.0.6", 7, 23, 60, 24); p.Payload = "sh zorro"; return p })
	add(40, func(i int) Packet { p := tcp(host(5), "10.9.0.10", int64(i), 80, 1500, 16); p.Queue = 60; return p })
	add(150, func(i int) Packet {
		return Packet{Src: "10.9.0.11", Dst: host(3), Proto: 17, SrcPort: 53, DstPort: 3333, Length: 90, Response: 1,
			DNSType: 1}
	})
	add(60, func(i int) Packet {
		return Packet{Src: "10.9.0.12", Dst: host(4), Proto: 17, SrcPort: 53, DstPort: 3333, Length: 1400, Response: 1,
			DNSType: 46}
	})
	numberFlowlets(packets)
	return packets
}

// numberFlowlets numbers the flowlets of each flow from 0.
func numberFlowlets(packets []Packet) {
	last := map[string]Packet{}
	for i := range packets {
		p := &packets[i]
		if before, ok := last[p.flow()]; ok {
			if p.Flowlet = before.Flowlet; p.Sent > before.Sent+FlowletGap {
				p.Flowlet++
			}
		}
		last[p.flow()] = *p
	}
}

// Loss is a count of lost packets of a flow.
type Loss struct {
	Flow Packet
	Lost int64
}

// Losses are losses of some flows.
func Losses(packets []Packet) (out []Loss) {
	for i, p := range packets[:4000] {
		if i%40 == 0 {
			out = append(out, Loss{p, int64(i%3) + 1})
		}
	}
	return out
}

type counts map[string]int64

// count adds up f over all packets by the key that it returns; an empty key leaves a packet out.
func count(packets []Packet, f func(p Packet) (key string, n int64)) counts {
	c := counts{}
	for _, p := range packets {
		if k, n := f(p); k != "" {
			c[k] += n
		}
	}
	return c
}

// distinct counts different second results by the first one.
func distinct(packets []Packet, f func(p Packet) (key, member string)) counts {
	seen, c := map[[2]string]bool{}, counts{}
	for _, p := range packets {
		if k, m := f(p); k != "" && !seen[[2]string{k, m}] {
			seen[[2]string{k, m}] = true
			c[k]++
		}
	}
	return c
}

func (c counts) above(n int64) (rows []string) {
	for k, v := range c {
		if v > n {
			rows = append(rows, fmt.Sprintf("%s %d", k, v))
		}
	}
	return rows
}

func when(ok bool, key string) string {
	if ok {
		return key
	}
	return ""
}

// Results computes the result of each example query from the packets of an epoch, in no order.
var Results = map[string]func(packets []Packet) []string{
	"new-tcp-connections": func(ps []Packet) []string { return syns(ps).above(40) },
	"ssh-brute-force": func(ps []Packet) []string {
		return distinct(ps, func(p Packet) (string, string) {
			return when(p.Proto == 6 && p.DstPort == 22, fmt.Sprintf("%s %d", p.Dst, p.Length)), p.Src
		}).above(40)
	},
	"superspreader": func(ps []Packet) []string {
		return distinct(ps, func(p Packet) (string, string) { return p.Src, p.Dst }).above(40)
	},
	"port-scan": func(ps []Packet) []string {
		return distinct(ps, func(p Packet) (string, string) {
			return when(p.Proto == 6, p.Src), fmt.Sprint(p.DstPort)
		}).above(40)
	},
	"ddos": func(ps []Packet) []string {
		return distinct(ps, func(p Packet) (string, string) { return p.Dst, p.Src }).above(40)
	},
	"syn-flood": func(ps []Packet) (rows []string) {
		s := syns(ps)
		answers := count(ps, func(p Packet) (string, int64) { return when(p.Proto == 6 && p.Flags == 18, p.Src), 1 })
		acks := count(ps, func(p Packet) (string, int64) { return when(p.Proto == 6 && p.Flags == 16, p.Dst), 1 })
		for host, n := range s {
			if open := n + answers[host] - 2*acks[host]; open > 40 && answers[host] > 0 && acks[host] > 0 {
				rows = append(rows, fmt.Sprintf("%s %d", host, open))
			}
		}
		return rows
	},
	"tcp-incomplete-flows": func(ps []Packet) (rows []string) {
		f := fins(ps)
		for host, n := range syns(ps) {
			if f[host] > 0 && n-f[host] > 40 {
				rows = append(rows, fmt.Sprintf("%s %d", host, n-f[host]))
			}
		}
		return rows
	},
	"completed-flows": func(ps []Packet) (rows []string) {
		f := fins(ps)
		for host, n := range syns(ps) {
			if n > 20 && 10*f[host] >= 9*n {
				rows = append(rows, fmt.Sprintf("%s %d %d", host, n, f[host]))
			}
		}
		return rows
	},
	"slowloris": func(ps []Packet) (rows []string) {
		flows := distinct(ps, func(p Packet) (string, string) {
			return when(p.Proto == 6, p.Dst), fmt.Sprint(p.Src, p.SrcPort)
		})
		for host, n := range count(ps, func(p Packet) (string, int64) { return when(p.Proto == 6, p.Dst), p.Length }) {
			if flows[host] > 40 && n/flows[host] < 100 {
				rows = append(rows, fmt.Sprintf("%s %d", host, n/flows[host]))
			}
		}
		return rows
	},
	"zorro": func(ps []Packet) []string {
		probes := count(ps, func(p Packet) (string, int64) {
			return when(p.Proto == 6 && p.DstPort == 23, fmt.Sprintf("%s %d", p.Dst, p.Length)), 1
		})
		hosts := counts{}
		for k, n := range probes {
			host, _, _ := strings.Cut(k, " ")
			for _, p := range ps {
				if n > 40 && p.Dst == host && p.DstPort == 23 && strings.Contains(p.Payload, "zorro") {
					hosts[host] = 1
				}
			}
		}
		var rows []string
		for host := range hosts {
			rows = append(rows, host)
		}
		return rows
	},
	"packet-counts": func(ps []Packet) []string {
		return count(ps, func(p Packet) (string, int64) { return p.flow(), 1 }).above(0)
	},
	"flowlet-size-histogram": func(ps []Packet) []string {
		c := counts{}
		for _, n := range count(ps, func(p Packet) (string, int64) { return fmt.Sprint(p.flow(), " ", p.Flowlet), 1 }) {
			c[fmt.Sprint(n)]++
		}
		return c.above(0)
	},
	"cardinality": func(ps []Packet) []string {
		c := counts{}
		for _, p := range ps {
			c[p.flow()] = 1
		}
		return []string{fmt.Sprint(len(c))}
	},
	"lossy-connections": func(ps []Packet) (rows []string) {
		sent := count(ps, func(p Packet) (string, int64) { return p.flow(), 1 })
		lost := counts{}
		for _, l := range Losses(ps) {
			lost[l.Flow.flow()] += l.Lost
		}
		for k, n := range lost {
			if 100*n > sent[k] {
				rows = append(rows, fmt.Sprintf("%s %d %d", k, sent[k], n))
			}
		}
		return rows
	},
	"tcp-incast": func(ps []Packet) []string {
		return count(ps, func(p Packet) (string, int64) { return when(p.Proto == 6 && p.Queue > 48, p.Dst), 1 }).above(20)
	},
	"dns-tunneling": func(ps []Packet) (rows []string) {
		opened := count(ps, func(p Packet) (string, int64) { return when(p.Proto == 6 && p.Flags == 2, p.Src), 1 })
		for host, n := range count(ps, func(p Packet) (string, int64) {
			return when(p.Proto == 17 && p.SrcPort == 53, p.Dst), 1
		}) {
			if opened[host] > 0 && n-opened[host] > 40 {
				rows = append(rows, fmt.Sprintf("%s %d", host, n-opened[host]))
			}
		}
		return rows
	},
	"reflection-dns": func(ps []Packet) []string {
		return count(ps, func(p Packet) (string, int64) {
			return when(p.Proto == 17 && p.SrcPort == 53 && p.Response == 1 && p.DNSType == 46, p.Dst), 1
		}).above(40)
	},
}

func syns(ps []Packet) counts {
	return count(ps, func(p Packet) (string, int64) { return when(p.Proto == 6 && p.Flags == 2, p.Dst), 1 })
}

func fins(ps []Packet) counts {
	return count(ps, func(p Packet) (string, int64) { return when(p.Proto == 6 && p.Flags&1 == 1, p.Dst), 1 })
}

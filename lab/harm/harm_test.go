// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The names of cases are unique and can be parts of paths.
func TestCases(t *testing.T) {
	names := map[string]bool{}
	for _, s := range scenarios {
		if names[s.name] || !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(s.name) || s.what == "" {
			t.Errorf("case %q has no name of its own, or no description", s.name)
		}
		names[s.name] = true
	}
}

// A packet counts as telemetry's loss unless the control pair lost one at the same time.
func TestAccount(t *testing.T) {
	begin := time.Unix(100, 0)
	of := func(lost ...int) *stream {
		s := &stream{refused: map[int]error{}}
		for n := range 100 {
			s.sent, s.arrived = append(s.sent, begin.Add(time.Duration(n)*20*time.Millisecond)), append(s.arrived, 1)
		}
		for _, n := range lost {
			s.arrived[n] = 0
		}
		return s
	}
	for name, c := range map[string]struct {
		lost, control []int
		want          count
	}{
		"none":             {want: count{sent: 100}},
		"alone":            {lost: []int{3, 4}, want: count{sent: 100, lost: 2}},
		"with control":     {lost: []int{3, 4}, control: []int{5}, want: count{sent: 100, outage: 2}},
		"before control":   {lost: []int{3, 40}, control: []int{50}, want: count{sent: 100, lost: 2}},
		"after control":    {lost: []int{60}, control: []int{50}, want: count{sent: 100, lost: 1}},
		"around its end":   {lost: []int{54, 56}, control: []int{49, 50}, want: count{sent: 100, lost: 1, outage: 1}},
		"the control only": {control: []int{50}, want: count{sent: 100}},
	} {
		if got, _ := of(c.lost...).account(of(c.control...)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// frames are one packet from h1 to h2 in each form. The epoch is 0x0102.
var frames = map[string]string{
	"":       "0200000000fe020000001002" + "0800" + ip4("45", "11") + udp,
	"shim":   "0200000000fe020000001002" + "88b5" + body + "0800" + ip4("45", "11") + udp,
	"option": "0200000000fe020000001002" + "0800" + ip4("48", "11") + "9e0c" + body + udp,
	"tunnel": "0200000000fe020000001002" + "0800" + ip4("45", "11") + "c00017c100000000" + "0400080000000000" +
		"ff5e0103" + body + "0000" + ip4("45", "11") + udp,
	"option in IPv6": "0200000000fe020000001002" + "86dd" + "6000000000283c40" + "fd000000000000010000000000000001" +
		"fd000000000000020000000000000001" + "1101" + "3e0a" + body + "0100" + udp,
}

const (
	body = "0102" + "000005" + "01" + "00010002"
	udp  = "0fa01b58000c0000" + "01020304"
)

func ip4(first, protocol string) string {
	return first + "00002000000000" + "40" + protocol + "0000" + "0a000101" + "0a000201"
}

func TestClassify(t *testing.T) {
	for name, text := range frames {
		frame, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		carrier, _, _ := strings.Cut(name, " ")
		want := seen{carrier: carrier, hostTo: "h2"}
		if carrier != "" {
			want.epoch = 0x0102
		}
		if got, ok := classify(frame); !ok || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, ok, want)
		}
	}
}

func FuzzClassify(f *testing.F) {
	for _, text := range frames {
		frame, _ := hex.DecodeString(text)
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if got, ok := classify(frame); ok && got.hostTo == "" {
			t.Errorf("a packet to no host: %+v", got)
		}
	})
}

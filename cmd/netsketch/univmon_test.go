// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

// The sample configuration has two leaves and a spine, each of which keeps one of three sketches.
func TestUnivMonManifest(t *testing.T) {
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := root()
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"univmon", "manifest", "--config", "../../configs/netsketch.yaml"}, args...))
		err := cmd.ExecuteContext(t.Context())
		return strings.Join(strings.Fields(out.String()), " "), err
	}
	for _, test := range []struct {
		args string
		want []string
	}{
		{"", []string{" 491520 2 ", "2 pairs, 3 sketches, most 491520 bytes, all 988160 bytes, at most 0.0 % above"}},
		{"--scheme=ingress", []string{"leaf1 src, dst, 5-tuple 988160 1", "leaf2 src, dst, 5-tuple 988160 1 spine1 0 0"}},
		{"--scheme=query", []string{"2 requests to the controller"}},
		{"--scheme=ingress --pairs", []string{"FROM TO PATHS SRC DST 5-TUPLE", "leaf1 leaf2 1 leaf1 leaf1 leaf1"}},
	} {
		out, err := run(strings.Fields(test.args)...)
		for _, want := range test.want {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%s: %v: %s\nexpected %s", test.args, err, out, want)
			}
		}
	}
	if _, err := run("--scheme=none"); err == nil || !strings.Contains(err.Error(), `no scheme is called "none"`) {
		t.Errorf("an unknown scheme: %v", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestColumn(t *testing.T) {
	one := Chart{Title: "one", Series: []Series{{Name: "a", Points: []Point{{1, 2}, {3, 4}}}}}
	svg, ok := Column([]Chart{one, {Title: "nothing"}, one})
	if !ok || strings.Count(svg, "<svg") != 3 || !strings.Contains(svg, `viewBox="0 0 560 680"`) || strings.Contains(svg, "nothing") {
		t.Errorf("not two charts below one another: %s", svg)
	}
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := Column([]Chart{{Title: "nothing"}}); ok {
		t.Error("a column of nothing")
	}
}

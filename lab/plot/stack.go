// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"fmt"
	"strings"
)

// Column draws charts below one another as one SVG; ok is false when none has a point.
func Column(charts []Chart) (svg string, ok bool) {
	var b strings.Builder
	n := 0
	for i := range charts {
		one, drawn := charts[i].SVG()
		if !drawn {
			continue
		}
		b.WriteString(strings.Replace(one, "<svg ", fmt.Sprintf(`<svg y="%d" width="%d" height="%d" `, n*height, width, height), 1))
		n++
	}
	if n == 0 {
		return "", false
	}
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\">\n%s</svg>\n", width, n*height, b.String()), true
}

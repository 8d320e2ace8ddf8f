// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"strings"
	"testing"
)

func TestCSV(t *testing.T) {
	var b bytes.Buffer
	if err := WriteCSV(&b, []Row{{"A", "b, c", 5, "t", "m", 0.25, "u", "x"}}); err != nil {
		t.Fatal(err)
	}
	if want := "structure,variant,memory,task,metric,value,unit,trace\nA,\"b, " +
		"c\",5,t,m,0.25,u,x\n"; !strings.HasSuffix(b.String(), "\n"+want) {
		t.Errorf("%q", b.String())
	}
}

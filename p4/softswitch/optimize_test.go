// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/compile"
)

// TestOptimizeChangesNothing runs every test program, and UnivMon, with and without the optimizer.
func TestOptimizeChangesNothing(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, filepath.Join("..", "compiled", "univmon.json"))
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			js, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var sw [2]*Switch
			var out [2][]byte
			for i, compile := range []func([]byte) (*Program, error){compile.Unoptimized, Compile} {
				p, err := compile(js)
				if err != nil {
					t.Fatal(err)
				}
				sw[i] = New(Config{Seed: 1, Clock: func() time.Duration { return 0 }})
				defer sw[i].Close()
				if err := sw[i].Load(p); err != nil {
					t.Fatal(err)
				}
				for id := range uint32(3) {
					if err := sw[i].AddPort(id, Port{Tx: func(pkt []byte, _ time.Duration) {
						out[i] = append(out[i],
							pkt...)
					}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			r := rand.New(rand.NewPCG(7, 7))
			gen := goldenInputs[trimJSON(file)]
			for n := range 1500 {
				pkt := udp(r.Uint32N(50), r.Uint32N(50), uint16(r.Uint32N(9)), 80)
				if gen != nil {
					pkt = gen(r)
				} else if trimJSON(file) == "services" {
					pkt = request{op: byte(n % 14), session: byte(r.IntN(9)), key: uint16(r.Uint32()), flow: r.Uint32(),
						v: r.Uint32()}.bytes()
				}
				for i := range sw {
					out[i] = out[i][:0]
					sw[i].Inject(0, pkt, time.Duration(n))
				}
				if !bytes.Equal(out[0], out[1]) {
					t.Fatalf("packet %x\n plain     %x\n optimized %x", pkt, out[0], out[1])
				}
			}
			for _, reg := range sw[0].Program().Info.Registers {
				a, err1 := sw[0].ReadRegisterBytes(reg.Name, 0, -1)
				b, err2 := sw[1].ReadRegisterBytes(reg.Name, 0, -1)
				if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
					t.Errorf("register %s differs: %v %v", reg.Name, err1, err2)
				}
			}
			if a, b := sw[0].Stats(), sw[1].Stats(); a != b {
				t.Errorf("plain %+v\noptimized %+v", a, b)
			}
		})
	}
}

func trimJSON(file string) string {
	name := filepath.Base(file)
	return name[:len(name)-len(".json")]
}

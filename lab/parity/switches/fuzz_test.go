// SPDX-License-Identifier: Apache-2.0

package switches

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/p4/bmv2"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/dataplane"
)

// TestFuzzBMv2 sends mutated packets through programs on the soft switch and on BMv2, and compares
// the packets that leave. The programs are those of TestParity with their tables, and the soft
// switch's test programs without. "make fuzz-bmv2" sends more packets, and runs the compiled
// programs of another directory as well.
func TestFuzzBMv2(t *testing.T) {
	if _, err := switchtest.BMv2Version(t.Context()); err != nil {
		t.Skipf("nothing to compare the soft switch with: %v", err)
	}
	n, seed := setting(t, "NETSKETCH_FUZZ_PACKETS", 200), setting(t, "NETSKETCH_FUZZ_SEED", 1)
	t.Logf("%d packets for each program, seed %d", n, seed)
	base := generated(t)[:4*n]
	for _, p := range programs(t, base) {
		t.Run(p.Name, func(t *testing.T) {
			in := base
			if p.frames != nil {
				in = p.frames(base)
			}
			m := newMutator(uint64(seed), in, p.DeviceConfig)
			in = in[:n]
			for i := range in {
				in[i] = m.packet()
			}
			soft := drive(t, startSoft(t), p, in, nil)
			compare(t, soft, drive(t, startBMv2(t), p, in, soft), in)
		})
	}
	var found tally
	fuzzFiles(t, filepath.Join("..", "..", "..", "p4", "softswitch", "testdata"), n, uint64(seed), &found)
	if dir := os.Getenv("NETSKETCH_FUZZ_SAMPLES"); dir != "" {
		found = tally{}
		fuzzFiles(t, dir, n, uint64(seed), &found)
		notRun := found.random + found.refused + found.refusedBMv2 + found.ended
		t.Logf("%s: %d programs: %d equal, %d equal but for fields of invalid headers, %d different, %d not compared: "+
			"%d draw random numbers, the soft switch refuses %d, BMv2 %d, and BMv2 ends or does not end in %d", dir,
			found.equal+found.leftovers+found.different+notRun, found.equal, found.leftovers, found.different, notRun,
			found.random, found.refused, found.refusedBMv2, found.ended)
	}
}

func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: expected a number of 1 or more", name, text)
	}
	return n
}

// ownClock lists the test programs whose packets show the switch's clock or its random numbers.
var ownClock = map[string]bool{"services": true, "queues": true}

// tally counts programs by their outcome.
type tally struct{ equal, leftovers, different, random, refused, refusedBMv2, ended int }

// fuzzFiles runs all BMv2 JSON files of a directory, without tables.
func fuzzFiles(t *testing.T, dir string, n int, seed uint64, found *tally) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no programs: %v", dir, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if ownClock[name] {
			continue
		}
		t.Run(name, func(t *testing.T) {
			js, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p, err := softswitch.Compile(js)
			if err != nil {
				found.refused++
				t.Skipf("the soft switch refuses it: %v", err)
			}
			m := newMutator(seed, append(recorded(t, strings.TrimSuffix(file, ".json")), plain()...), js)
			// A truncated packet has invalid headers, whose fields are undefined: in a register they
			// would change the results of later packets.
			m.whole = len(p.Info.Registers) > 0
			in := make([]arrival, n)
			for i := range in {
				in[i] = m.packet()
			}
			soft := throughSoft(t, p, in)
			flight := inFlight
			if len(p.Info.Registers) > 0 {
				flight = 1 // BMv2's ingress of a packet may precede the egress of the one before
			}
			bm, err := throughBMv2(t, file, in, flight)
			switch {
			case errors.Is(err, errNotLoaded):
				found.refusedBMv2++
				t.Skip(err)
			case err != nil:
				found.ended++
				t.Skip(err)
			}
			if bytes.Contains(js, []byte(`"modify_field_rng_uniform"`)) && !slices.EqualFunc(soft, bm, sameOutputs) {
				found.random++
				t.Skip("packets differ, and the program draws random numbers")
			}
			if different := leftover(t, file, p, in, soft, bm); different != nil {
				t.Logf("%d packets differ after others: BMv2 reads fields of invalid headers, which hold what earlier "+
					"packets left; alone each of %v is equal", len(different), different[:min(len(different), aloneMost)])
				found.leftovers++
				return
			}
			compare(t, &result{outputs: soft}, &result{outputs: bm}, in)
			if t.Failed() {
				found.different++
			} else {
				found.equal++
			}
		})
	}
}

// aloneMost bounds the packets that run alone.
const aloneMost = 5

// leftover returns the packets that differ, if the cause is fields of invalid headers, whose value
// P4 leaves undefined: the soft switch reads zeros, BMv2 what an earlier packet left there. Then
// the packets are equal in switches that have had no other packet. It returns nil if there is no
// difference, a difference of another kind, or a program with state.
func leftover(t *testing.T, file string, p *softswitch.Program, in []arrival, soft, bm [][]output) (different []int) {
	t.Helper()
	for i := range in {
		if !sameOutputs(soft[i], bm[i]) {
			different = append(different, i)
		}
	}
	if len(p.Info.Registers)+len(p.Info.Meters) > 0 {
		return nil
	}
	for _, i := range different[:min(len(different), aloneMost)] {
		alone, err := throughBMv2(t, file, in[i:i+1], 1)
		if err != nil || !sameOutputs(throughSoft(t, p, in[i:i+1])[0], alone[0]) {
			return nil
		}
	}
	return different
}

func sameOutputs(a, b []output) bool { return slices.EqualFunc(a, b, output.equal) }

// throughSoft returns the packets that leave the soft switch for each packet that arrives.
func throughSoft(t *testing.T, p *softswitch.Program, in []arrival) [][]output {
	t.Helper()
	sw := softswitch.New(softswitch.Config{CPUPort: cpuPort})
	defer sw.Close()
	if err := sw.Load(p); err != nil {
		t.Fatal(err)
	}
	var left []output
	for port := range uint32(softswitch.DropPort) {
		if port == cpuPort {
			continue
		}
		if err := sw.AddPort(port, softswitch.Port{Tx: func(frame []byte, _ time.Duration) {
			left = append(left, output{port, bytes.Clone(frame)})
		}}); err != nil {
			t.Fatal(err)
		}
	}
	out := make([][]output, len(in))
	for i, a := range in {
		left = nil
		sw.Inject(a.port, a.frame, time.Duration(i)*time.Millisecond)
		out[i] = left
		slices.SortFunc(out[i], output.compare)
	}
	return out
}

var errNotLoaded = errors.New("BMv2 does not load it")

// throughBMv2 is throughSoft for BMv2, which reports by the end of a stream that it has processed
// its packets. At most flight packets are under way.
func throughBMv2(t *testing.T, file string, in []arrival, flight int) ([][]output, error) {
	t.Helper()
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	sw, err := bmv2.Start(ctx, bmv2.Config{DeviceID: deviceID, CPUPort: cpuPort, Program: file})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotLoaded, err)
	}
	defer sw.Close()
	conn, err := grpc.NewClient(sw.DataPlane(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	out := make([][]output, len(in))
	for from := 0; from < len(in); {
		to := min(from+flight, len(in))
		err := stream(ctx, conn, in[from:to], uint64(from+1), out)
		if status.Code(err) == codes.Unavailable {
			select {
			case <-sw.Ended():
			case <-time.After(50 * time.Millisecond): // the switch refuses streams until it runs the program
				if ctx.Err() == nil {
					continue
				}
			}
		}
		if err != nil {
			return nil, fmt.Errorf("BMv2 ends or does not end: packets %d to %d: %w\n%s", from, to-1, err, sw.Log())
		}
		from = to
	}
	for i := range out {
		slices.SortFunc(out[i], output.compare)
	}
	return out, nil
}

// stream sends packets with ids from first on, and files each packet that leaves under its id.
func stream(ctx context.Context, conn *grpc.ClientConn, in []arrival, first uint64, out [][]output) error {
	client, err := dataplane.Open(ctx, conn, deviceID)
	if err != nil {
		return err
	}
	defer client.Close()
	for i, a := range in {
		if err := client.Inject(a.port, a.frame, first+uint64(i)); err != nil {
			return err
		}
	}
	if err := client.CloseSend(); err != nil {
		return err
	}
	for p := range client.Packets() {
		if p.ID == 0 || p.ID > uint64(len(out)) {
			return fmt.Errorf("a packet with id %d left by port %d", p.ID, p.Port)
		}
		out[p.ID-1] = append(out[p.ID-1], output{p.Port, p.Frame})
	}
	return client.Err()
}

// recorded returns the packets that are recorded next to a program, in its golden file or in a test
// of p4c's STF format.
func recorded(t *testing.T, name string) (out []arrival) {
	t.Helper()
	for suffix, form := range map[string]string{
		".golden": `(?m)^in ()([0-9a-f]+)$`, ".stf": `(?mi)^packet +([0-9]+) +([0-9a-f ]+)`,
	} {
		text, err := os.ReadFile(name + suffix)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(form).FindAllSubmatch(text, -1) {
			digits := strings.ReplaceAll(string(m[2]), " ", "")
			frame, err := hex.DecodeString(digits[:len(digits)&^1])
			port, _ := strconv.Atoi(string(m[1])) // 0 in golden files
			if err == nil && len(frame) > 0 && port < softswitch.DropPort {
				out = append(out, arrival{uint32(port), frame})
			}
		}
	}
	return out
}

// plain returns packets of common formats.
func plain() (out []arrival) {
	ethernet := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	ip := []byte{0x45, 0, 0, 40, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
	tcp := []byte{0, 80, 4, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0}
	ip6 := append([]byte{0x60, 0, 0, 0, 0, 20, 6, 64}, make([]byte, 32)...)
	payload := bytes.Repeat([]byte{0xa5}, 40)
	for _, layers := range [][][]byte{
		{ethernet, {8, 0}, ip, tcp, payload}, {ethernet, {0x86, 0xdd}, ip6, tcp, payload},
		{ethernet, {0x81, 0, 0, 5, 8, 0}, ip, tcp, payload}, {ethernet, {0x88, 0x47, 0, 1, 1, 64}, ip, tcp},
		{ethernet, {0x12, 0x34}, payload}, {payload}, {make([]byte, 64)}, {ip, tcp},
	} {
		out = append(out, arrival{1, bytes.Join(layers, nil)})
	}
	return out
}

// mutator makes mutated packets from given packets.
type mutator struct {
	rng   *rand.Rand
	seeds []arrival
	words [][]byte // constants of the program
	whole bool     // whether packets must not become shorter
}

var constant = regexp.MustCompile(`"0x([0-9a-fA-F]{1,16})"`)

func newMutator(seed uint64, seeds []arrival, js []byte) *mutator {
	m := &mutator{rng: rand.New(rand.NewPCG(seed, 11)), seeds: slices.Clone(seeds)}
	for _, c := range constant.FindAllSubmatch(js, 2000) {
		v, err := strconv.ParseUint(string(c[1]), 16, 64)
		if err != nil {
			continue
		}
		b := binary.BigEndian.AppendUint64(nil, v)
		m.words = append(m.words, b[min(7, 8-(len(c[1])+1)/2):])
	}
	return m
}

// packet returns a packet of the seeds with up to five changes.
func (m *mutator) packet() arrival {
	from := m.seeds[m.rng.IntN(len(m.seeds))]
	a := arrival{from.port, bytes.Clone(from.frame)}
	if m.rng.IntN(8) == 0 {
		a.port = m.rng.Uint32N(8)
	}
	for range m.rng.IntN(6) {
		f := a.frame
		at := m.rng.IntN(len(f))
		if m.rng.IntN(2) == 0 { // most headers are at the beginning
			at = m.rng.IntN(min(len(f), 24))
		}
		switch m.rng.IntN(7) {
		case 0:
			f[at] ^= 1 << m.rng.IntN(8)
		case 1:
			f[at] = byte(m.rng.Uint32())
		case 2:
			f[at] = []byte{0, 1, 2, 0x7f, 0x80, 0xff}[m.rng.IntN(6)]
		case 3, 4:
			if len(m.words) > 0 {
				copy(f[at:], m.words[m.rng.IntN(len(m.words))])
			}
		case 5:
			a.frame = f[:at+1]
		case 6:
			other := m.seeds[m.rng.IntN(len(m.seeds))].frame
			if len(f) < 1024 {
				a.frame = append(f[:at+1:at+1], other[m.rng.IntN(len(other)):]...)
			}
		}
	}
	if n := len(a.frame); m.whole && n < len(from.frame) {
		a.frame = append(a.frame[:n:n], from.frame[n:]...)
	}
	return a
}

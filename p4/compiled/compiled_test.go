// SPDX-License-Identifier: Apache-2.0

package compiled

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/netsketch/netsketch/p4/compiled/internal/sources"
	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var programs = os.DirFS("../programs")

// TestCompiledFilesAreCurrent fails if a source was changed, added or removed without make p4.
func TestCompiledFilesAreCurrent(t *testing.T) {
	want, err := sources.Programs(programs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, Names()); diff != "" {
		t.Errorf("p4/programs and p4/compiled differ: run make p4, and remove files that it does not write "+
			"(-sources +compiled):\n%s", diff)
	}
	text, err := files.ReadFile("digests.txt")
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 {
			recorded[f[0]] = f[1]
		}
	}
	for _, name := range want {
		digest, err := sources.Digest(programs, name)
		if err != nil {
			t.Fatal(err)
		}
		if recorded[name] != digest {
			t.Errorf("program %s: p4/compiled was made from other sources than p4/programs has now: run make p4", name)
		}
	}
}

func TestLoadUnknown(t *testing.T) {
	_, err := Load("no-such")
	if err == nil || !strings.Contains(err.Error(), "no-such") || !strings.Contains(err.Error(), "univmon-300k") {
		t.Errorf("Load(no-such): error %v, want one that names it and the programs that there are", err)
	}
}

// TestMessage: every program fits into a message of a gRPC server that has the default limit, and
// with room to spare for what its next version adds.
func TestMessage(t *testing.T) {
	const limit = 4 << 20 // of google.golang.org/grpc, and of gRPC C++, which BMv2 uses
	for _, name := range Names() {
		p, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		m := &p4v1.SetForwardingPipelineConfigRequest{DeviceId: 1,
			Action: p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
			Config: &p4v1.ForwardingPipelineConfig{P4Info: p.P4Info, P4DeviceConfig: p.JSON}}
		if n := proto.Size(m); n > limit*3/4 {
			t.Errorf("%s: %d bytes, of a limit of %d", name, n, limit)
		}
	}
}

// bmv2 is the part of the BMv2 JSON that P4Info describes.
type bmv2 struct {
	HeaderTypes []struct {
		Name   string
		Fields [][]any
	} `json:"header_types"`
	Actions []struct {
		Name        string
		RuntimeData []struct {
			Name     string
			Bitwidth int
		} `json:"runtime_data"`
	}
	Pipelines []struct {
		Tables []struct {
			Name    string
			MaxSize int64 `json:"max_size"`
			Key     []struct {
				Name      string
				MatchType string `json:"match_type"`
			}
			Actions []string
			Entries []json.RawMessage
		}
	}
	RegisterArrays []struct {
		Name     string
		Size     int
		Bitwidth int
	} `json:"register_arrays"`
	CounterArrays []struct {
		Name string
		Size int64
	} `json:"counter_arrays"`
}

// TestCorrespondence checks, object by object, that P4Info and JSON are two views of
// one program.
func TestCorrespondence(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			p, err := Load(name)
			if err != nil {
				t.Fatal(err)
			}
			var sw bmv2
			if err := json.Unmarshal(p.JSON, &sw); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(infoView(p.P4Info), jsonView(&sw, p.P4Info)); diff != "" {
				t.Errorf("P4Info and JSON differ (-P4Info +JSON):\n%s", diff)
			}
		})
	}
}

// infoView lists a program's objects from P4Info, one line each.
func infoView(info *p4configv1.P4Info) []string {
	var out []string
	actions := map[uint32]string{}
	for _, a := range info.GetActions() {
		actions[a.GetPreamble().GetId()] = a.GetPreamble().GetName()
		line := "action " + a.GetPreamble().GetName()
		for _, p := range a.GetParams() {
			line += fmt.Sprintf(" %s:%d", p.GetName(), p.GetBitwidth())
		}
		out = append(out, line)
	}
	for _, t := range info.GetTables() {
		size := fmt.Sprint("size ", t.GetSize())
		if t.GetIsConstTable() {
			size = "const" // P4Info has a default for its size, the JSON the number of entries
		}
		line := fmt.Sprintf("table %s %s keys", t.GetPreamble().GetName(), size)
		for _, f := range t.GetMatchFields() {
			line += fmt.Sprintf(" %s:%s", f.GetName(), strings.ToLower(f.GetMatchType().String()))
		}
		var names []string
		for _, a := range t.GetActionRefs() {
			names = append(names, actions[a.GetId()])
		}
		slices.Sort(names)
		out = append(out, line+" actions "+strings.Join(names, " "))
	}
	for _, r := range info.GetRegisters() {
		out = append(out, fmt.Sprintf("register %s size %d width %d", r.GetPreamble().GetName(), r.GetSize(),
			r.GetTypeSpec().GetBitstring().GetBit().GetBitwidth()))
	}
	for _, c := range info.GetCounters() {
		out = append(out, fmt.Sprintf("counter %s size %d", c.GetPreamble().GetName(), c.GetSize()))
	}
	for _, h := range info.GetControllerPacketMetadata() {
		line := "header " + h.GetPreamble().GetName()
		for _, m := range h.GetMetadata() {
			line += fmt.Sprintf(" %s:%d", m.GetName(), m.GetBitwidth())
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// jsonView lists the same objects from BMv2's JSON. The JSON also has p4c's internal objects, and
// an action once for each table; the names of P4Info select the objects.
func jsonView(sw *bmv2, info *p4configv1.P4Info) []string {
	public := map[string]bool{}
	for _, a := range info.GetActions() {
		public[a.GetPreamble().GetName()] = true
	}
	for _, t := range info.GetTables() {
		public[t.GetPreamble().GetName()] = true
	}
	for _, h := range info.GetControllerPacketMetadata() {
		public[h.GetPreamble().GetName()] = true
	}
	var out []string
	for _, a := range sw.Actions {
		if !public[a.Name] {
			continue
		}
		line := "action " + a.Name
		for _, p := range a.RuntimeData {
			line += fmt.Sprintf(" %s:%d", p.Name, p.Bitwidth)
		}
		if !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	for _, pipeline := range sw.Pipelines {
		for _, t := range pipeline.Tables {
			if !public[t.Name] {
				continue
			}
			size := fmt.Sprint("size ", t.MaxSize)
			if len(t.Entries) > 0 {
				size = "const"
			}
			line := fmt.Sprintf("table %s %s keys", t.Name, size)
			for _, k := range t.Key {
				line += fmt.Sprintf(" %s:%s", k.Name, k.MatchType)
			}
			slices.Sort(t.Actions)
			out = append(out, line+" actions "+strings.Join(t.Actions, " "))
		}
	}
	for _, r := range sw.RegisterArrays {
		out = append(out, fmt.Sprintf("register %s size %d width %d", r.Name, r.Size, r.Bitwidth))
	}
	for _, c := range sw.CounterArrays {
		out = append(out, fmt.Sprintf("counter %s size %d", c.Name, c.Size))
	}
	for _, h := range sw.HeaderTypes {
		name := strings.TrimSuffix(h.Name, "_t")
		if !public[name] {
			continue
		}
		line := "header " + name
		for _, f := range h.Fields {
			line += fmt.Sprintf(" %v:%v", f[0], f[1])
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// TestReadOut checks the registers and their sizes against docs/p4.md.
func TestReadOut(t *testing.T) {
	const cells = 256 // cells that a read-out packet has
	bytesABank := map[string]int{"chamelemon": 732_160, "forwarding": 0, "lightguardian": 0, "omnimon": 398_336,
		"sketchint": 0, "sketchint-edge": 391_168, "univmon": 992_256, "univmon-300k": 284_672, "univmon-pairs": 336_896}
	for _, name := range Names() {
		p, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		size, objects := 0, map[int64]string{}
		for _, r := range p.P4Info.GetRegisters() {
			label := fmt.Sprintf("program %s, register %s", name, r.GetPreamble().GetName())
			switch r.GetPreamble().GetName() {
			case "egress.sketchint.sequence", "lightguardian_state", "lightguardian_sketch", "lightguardian_carried":
				continue // state of the switch, which no collector reads
			}
			a := annotation(r.GetPreamble(), "netsketch_readout")
			object, banks := a["object"].GetInt64Value(), a["banks"].GetInt64Value()
			if object < 1 || object > 255 || objects[object] != "" {
				t.Errorf("%s: read-out object %d is out of range or taken by %s", label, object, objects[object])
			}
			objects[object] = r.GetPreamble().GetName()
			if banks < 2 || r.GetSize()%int32(banks) != 0 || r.GetSize()/int32(banks)%cells != 0 {
				t.Errorf("%s: %d cells are not %d banks of a multiple of %d cells", label, r.GetSize(), banks, cells)
				continue
			}
			if want := annotatedCells(r.GetPreamble()); int64(r.GetSize())/banks != want {
				t.Errorf("%s: a bank has %d cells, its annotations make %d", label, int64(r.GetSize())/banks, want)
			}
			size += int(r.GetSize()) / int(banks) * int(r.GetTypeSpec().GetBitstring().GetBit().GetBitwidth()) / 8
		}
		if want, known := bytesABank[name]; !known || size != want {
			t.Errorf("program %s: %d bytes of registers a bank, this test and docs/p4.md say %d", name, size, want)
		}
	}
}

func annotation(p *p4configv1.Preamble, name string) map[string]*p4configv1.Expression {
	out := map[string]*p4configv1.Expression{}
	for _, a := range p.GetStructuredAnnotations() {
		if a.GetName() == name {
			for _, kv := range a.GetKvPairList().GetKvPairs() {
				out[kv.GetKey()] = kv.GetValue()
			}
		}
	}
	return out
}

// annotatedCells returns the number of cells of a bank by an algorithm's annotations.
func annotatedCells(p *p4configv1.Preamble) int64 {
	a := annotation(p, "netsketch_univmon")
	for _, name := range []string{"netsketch_chamelemon", "netsketch_omnimon", "netsketch_sketchint"} {
		if len(a) == 0 {
			a = annotation(p, name)
		}
	}
	number := func(key string) int64 { return a[key].GetInt64Value() }
	switch a["part"].GetStringValue() {
	case "counters":
		// The counts by level come after the sketch, in a separate block.
		return number("packets") + 256
	case "heavy":
		// Levels from the ninth on have a quarter of the slots.
		slots := min(number("levels"), 8)*number("slots") + max(number("levels")-8, 0)*((number("slots")+3)/4)
		return slots * number("ways") * number("words")
	case "classifier":
		return number("counters")
	case "counts":
		return number("departed") + number("ports")
	case "uncounted", "unparsed":
		return 256
	case "flows", "latencies":
		return number("cells") * int64(strings.Count(a["rows"].GetStringValue(), ",")+1)
	case "encoder":
		return number("arrays") * number("buckets") * number("words")
	}
	return 0
}

// TestNoPaths fails when a path of the machine that compiled got into the files.
func TestNoPaths(t *testing.T) {
	for _, name := range Names() {
		p, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.Index(p.JSON, []byte(`"filename":"/`)); i >= 0 {
			t.Errorf("program %s names a file by its absolute path: %s", name, p.JSON[i:min(i+80, len(p.JSON))])
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
	"github.com/netsketch/netsketch/yang/table"
)

// later adds a field of a later release to a message and all messages in it.
func later(m protoreflect.Message) {
	m.SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 9000, protowire.BytesType), "of a later release"))
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Kind() != protoreflect.MessageKind || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				later(v.List().Get(i).Message())
			}
		default:
			later(v.Message())
		}
		return true
	})
}

// rewrite adds such fields to all messages of a transfer, the first of which is head.
func rewrite(t *testing.T, payload []byte, head proto.Message, next func() proto.Message) []byte {
	t.Helper()
	var out bytes.Buffer
	r := bytes.NewReader(payload)
	for m := head; r.Len() > 0; m = next() {
		if err := read(r, m); err != nil {
			t.Fatal(err)
		}
		later(m.ProtoReflect())
		if _, err := protodelim.MarshalTo(&out, m); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// A part and results of a later minor release, which may have fields that this one does not know,
// are those of this release.
func TestFieldsOfALaterRelease(t *testing.T) {
	payload := encode(t)
	changed := rewrite(t, payload, &clusterv1.Part{}, func() proto.Message { return &pluginv1.MergeRequest{} })
	if len(changed) <= len(payload) {
		t.Fatalf("%d bytes with further fields, %d without", len(changed), len(payload))
	}
	want, err := decode(payload, 1<<24, len(payload))
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(changed, 1<<24, len(changed))
	text := cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
	if diff := cmp.Diff(want, got, cmp.Comparer(bytes.Equal), text); err != nil || diff != "" {
		t.Errorf("error %v, part differs (-want +got):\n%s", err, diff)
	}

	var chunk bytes.Buffer
	head := &clusterv1.Chunk{Member: "c1", Transfer: 1, Last: true}
	later(head.ProtoReflect())
	if _, err := protodelim.MarshalTo(&chunk, head); err != nil {
		t.Fatal(err)
	}
	chunk.WriteString("data")
	whole, err := NewJoiner(4, buffers).Add(chunk.Bytes())
	if err != nil || whole == nil || whole.Sink.String() != "data" {
		t.Errorf("transfer %+v, error %v", whole, err)
	}

	b := table.NewBuilder("/netsketch-univmon:univmon/flows/flow")
	flow, packets := b.TextKey("flow"), b.Uint("state/packets")
	flow.Append("f")
	packets.Append(7)
	tab, err := b.Table()
	if err != nil {
		t.Fatal(err)
	}
	if payload, err = EncodeBatch(&store.Batch{Target: "s1", Time: t0, Epoch: 4,
		Tables: []store.Publication{{Table: tab, Replace: true}}}); err != nil {
		t.Fatal(err)
	}
	changed = rewrite(t, payload, &clusterv1.Batch{}, func() proto.Message { return &pluginv1.TablePart{} })
	batch, err := DecodeBatch(changed, 1<<20)
	if err != nil || batch.Epoch != 4 || len(batch.Tables) != 1 || !batch.Tables[0].Replace ||
		fmt.Sprint(batch.Tables[0].Table.RowPath(0)) != fmt.Sprint(tab.RowPath(0)) ||
		fmt.Sprint(batch.Tables[0].Table.Values[0].Value(0)) != "7" {
		t.Errorf("results %+v, error %v", batch, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package clusterv1_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
)

// messages are all messages of the package.
func messages() (all []protoreflect.MessageDescriptor) {
	list := clusterv1.File_netsketch_cluster_v1_cluster_proto.Messages()
	for i := range list.Len() {
		all = append(all, list.Get(i))
	}
	return all
}

func newMessage(d protoreflect.MessageDescriptor) protoreflect.Message {
	found, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err) // the message is generated, so the registry has it
	}
	return found.New()
}

// Every message of this version is encoded as the bytes in testdata, and printed as the text next
// to them. The text shows a renamed field, and the bytes show a field with another number or type.
// A message may change only with a new Version. For a message without files, the test writes them
// and fails.
func TestGolden(t *testing.T) {
	for _, d := range messages() {
		name := filepath.Join("testdata", string(d.Name()))
		want, err := os.ReadFile(name + ".txt")
		if os.IsNotExist(err) {
			writeGolden(t, name, d)
			t.Errorf("%s: it had no files in testdata; they are written now: commit them, and change Version", d.Name())
			continue
		}
		data, errBytes := os.ReadFile(name + ".bin")
		if err != nil || errBytes != nil {
			t.Fatal(err, errBytes)
		}
		m, decoded := newMessage(d).Interface(), newMessage(d).Interface()
		if err := prototext.Unmarshal(want, m); err != nil {
			t.Errorf("%s: the text does not fit the message: %v", d.Name(), err)
			continue
		}
		if err := clusterv1.Unmarshal(data, decoded); err != nil || !proto.Equal(m, decoded) {
			t.Errorf("%s: the bytes are %v, error %v; the text is %v", d.Name(), decoded, err, m)
		}
		for _, again := range []proto.Message{m, decoded} {
			if got, err := (proto.MarshalOptions{Deterministic: true}).Marshal(again); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: encoded as %x, error %v; want %x", d.Name(), got, err, data)
			}
		}
		for i := range d.Fields().Len() {
			if f := d.Fields().Get(i); !m.ProtoReflect().Has(f) {
				t.Errorf("%s: testdata has no field %s: add it, and change Version", d.Name(), f.Name())
			}
		}
	}
}

// writeGolden writes the files of a message with all fields set.
func writeGolden(t *testing.T, name string, d protoreflect.MessageDescriptor) {
	t.Helper()
	m := newMessage(d)
	fill(m)
	data, err := (proto.MarshalOptions{Deterministic: true}).Marshal(m.Interface())
	if err == nil {
		err = os.WriteFile(name+".bin", data, 0o600)
	}
	if err == nil {
		err = os.WriteFile(name+".txt", []byte(prototext.Format(m.Interface())), 0o600)
	}
	t.Errorf("%s: its files were missing and have been written; error %v", name, err)
}

// fill sets all fields of a message to values that differ.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
			m.Mutable(f).Map().Set(value(f.MapKey(), m).MapKey(), value(f.MapValue(), m))
		case f.IsList():
			m.Mutable(f).List().Append(value(f, m))
		default:
			m.Set(f, value(f, m))
		}
	}
}

func value(f protoreflect.FieldDescriptor, in protoreflect.Message) protoreflect.Value {
	n := int(f.Number())
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(-n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(-n))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(string(f.Name()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(f.Name()))
	case protoreflect.MessageKind:
		v := newMessage(f.Message())
		fill(v)
		return protoreflect.ValueOfMessage(v)
	default:
		panic("no value for " + string(in.Descriptor().Name()) + "." + string(f.Name()))
	}
}

// A field of another version, at any depth, is an error.
func TestFieldOfAnotherVersion(t *testing.T) {
	other := protowire.AppendString(protowire.AppendTag(nil, 9000, protowire.BytesType), "of another version")
	entry := &clusterv1.Entry{Table: "t", Params: []*clusterv1.Param{{Name: "p"}}}
	entry.GetParams()[0].ProtoReflect().SetUnknown(other)
	banks := &clusterv1.Banks{Window: &clusterv1.Window{}}
	banks.GetWindow().ProtoReflect().SetUnknown(other)
	for _, m := range []proto.Message{entry, banks} {
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := clusterv1.Unmarshal(data, newMessage(m.ProtoReflect().Descriptor()).Interface()); err == nil ||
			!strings.Contains(err.Error(), "field 9000 of ") {
			t.Errorf("%v: error %v", m, err)
		}
	}
}

// FuzzUnmarshal decodes what another process may send as each of the messages. What is accepted is
// the same after it was encoded.
func FuzzUnmarshal(f *testing.F) {
	all := messages()
	for i, d := range all {
		data, err := os.ReadFile(filepath.Join("testdata", string(d.Name())+".bin"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), data)
		f.Add(uint8(i), slices.Concat(data, data))
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		d := all[int(which)%len(all)]
		m, again := newMessage(d).Interface(), newMessage(d).Interface()
		if clusterv1.Unmarshal(data, m) != nil {
			return
		}
		encoded, err := proto.Marshal(m)
		if err == nil {
			err = clusterv1.Unmarshal(encoded, again)
		}
		if err != nil || !proto.Equal(m, again) {
			t.Errorf("%x is %v, and then %v, error %v", data, m, again, err)
		}
	})
}

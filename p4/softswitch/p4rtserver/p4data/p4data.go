// SPDX-License-Identifier: Apache-2.0

// Package p4data encodes values of P4 types as P4Runtime's P4Data.
package p4data

import (
	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// Encode encodes a value of a type. values lists the value's fields in order; the fields of a
// nested struct stand in the place of the struct.
func Encode(types *p4configv1.P4TypeInfo, t *p4configv1.P4DataTypeSpec, values [][]byte) *p4v1.P4Data {
	return encode(types, t, &values, 0)
}

func encode(types *p4configv1.P4TypeInfo, t *p4configv1.P4DataTypeSpec, rest *[][]byte, depth int) *p4v1.P4Data {
	var of []*p4configv1.P4DataTypeSpec
	wrap := func(m *p4v1.P4StructLike) *p4v1.P4Data { return &p4v1.P4Data{Data: &p4v1.P4Data_Struct{Struct: m}} }
	switch t := t.GetTypeSpec().(type) {
	case *p4configv1.P4DataTypeSpec_Struct:
		for _, m := range types.GetStructs()[t.Struct.GetName()].GetMembers() {
			of = append(of, m.GetTypeSpec())
		}
	case *p4configv1.P4DataTypeSpec_Tuple:
		of = t.Tuple.GetMembers()
		wrap = func(m *p4v1.P4StructLike) *p4v1.P4Data { return &p4v1.P4Data{Data: &p4v1.P4Data_Tuple{Tuple: m}} }
	case *p4configv1.P4DataTypeSpec_Bool:
		return &p4v1.P4Data{Data: &p4v1.P4Data_Bool{Bool: !p4values.IsZero(next(rest))}}
	case *p4configv1.P4DataTypeSpec_SerializableEnum:
		return &p4v1.P4Data{Data: &p4v1.P4Data_EnumValue{EnumValue: p4values.Canonical(next(rest))}}
	case *p4configv1.P4DataTypeSpec_NewType:
		if o := types.GetNewTypes()[t.NewType.GetName()].GetOriginalType(); o != nil && depth < maxTypeDepth {
			return encode(types, o, rest, depth+1)
		}
		return bitstring(next(rest))
	case *p4configv1.P4DataTypeSpec_Bitstring:
		if i := t.Bitstring.GetInt(); i != nil {
			return &p4v1.P4Data{Data: &p4v1.P4Data_Bitstring{Bitstring: p4values.FromSignedBits(next(rest),
				int(i.GetBitwidth()))}}
		}
		return bitstring(next(rest))
	default:
		return bitstring(next(rest))
	}
	m := &p4v1.P4StructLike{}
	for _, o := range of {
		if depth < maxTypeDepth {
			m.Members = append(m.Members, encode(types, o, rest, depth+1))
		}
	}
	return wrap(m)
}

// maxTypeDepth bounds the nesting of types.
const maxTypeDepth = 16

func bitstring(v []byte) *p4v1.P4Data {
	return &p4v1.P4Data{Data: &p4v1.P4Data_Bitstring{Bitstring: p4values.Canonical(v)}}
}

func next(rest *[][]byte) []byte {
	if len(*rest) == 0 {
		return nil
	}
	v := (*rest)[0]
	*rest = (*rest)[1:]
	return v
}

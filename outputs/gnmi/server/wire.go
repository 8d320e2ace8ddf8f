// SPDX-License-Identifier: Apache-2.0

// The protobuf encoding of the parts of a SubscribeResponse, which lets streams share encoded
// parts.

package server

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang/table"
)

// Field numbers of gnmi.proto.
const (
	pathOrigin = 2
	pathElem   = 3
	pathTarget = 4

	elemName = 1
	elemKey  = 2

	noteTimestamp = 1
	notePrefix    = 2
	noteUpdate    = 4
	noteDelete    = 5
	noteAtomic    = 6

	updatePath       = 1
	updateVal        = 3
	updateDuplicates = 4

	valString   = 1
	valInt      = 2
	valUint     = 3
	valBool     = 4
	valJSON     = 10
	valJSONIETF = 11
	valDouble   = 14

	responseUpdate = 1
)

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, v)
}

func appendString(b []byte, field protowire.Number, v string) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, v)
}

func appendVarint(b []byte, field protowire.Number, v uint64) []byte {
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}

// appendElem appends a Path's elem without keys.
func appendElem(b []byte, name string) []byte {
	b = protowire.AppendTag(b, pathElem, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(1+protowire.SizeBytes(len(name))))
	return appendString(b, elemName, name)
}

// appendElems appends the Path elements from to to of a row's entry, with their keys.
func appendElems(b []byte, e *store.Entry, from, to int) []byte {
	for i := from; i < to; i++ {
		keyed := false
		for k := range e.List.Keys {
			keyed = keyed || e.List.Keys[k].Elem == i
		}
		if !keyed {
			b = appendElem(b, e.List.Elems[i])
			continue
		}
		elem := appendString(nil, elemName, e.List.Elems[i])
		var pair []byte
		for k := range e.List.Keys {
			if e.List.Keys[k].Elem != i {
				continue
			}
			pair = appendString(pair[:0], 1, e.List.Keys[k].Name)
			pair = protowire.AppendTag(pair, 2, protowire.BytesType)
			pair = protowire.AppendString(pair, strings.ToValidUTF8(e.Keys[k].String(), "\ufffd"))
			elem = appendBytes(elem, elemKey, pair)
		}
		b = appendBytes(b, pathElem, elem)
	}
	return b
}

// appendPathHead appends origin and target of a prefix.
func appendPathHead(b []byte, origin, target string) []byte {
	if origin != "" {
		b = appendString(b, pathOrigin, origin)
	}
	if target != "" {
		b = appendString(b, pathTarget, target)
	}
	return b
}

// appendValue appends an Update's val.
func appendValue(b []byte, enc gpb.Encoding, f *leafInfo, v store.Value) []byte {
	var buf [64]byte
	val := buf[:0]
	switch enc {
	case gpb.Encoding_JSON:
		val = appendBytes(val, valJSON, appendJSON(nil, false, f, v))
	case gpb.Encoding_JSON_IETF:
		val = appendBytes(val, valJSONIETF, appendJSON(nil, true, f, v))
	default:
		switch v.Kind() {
		case table.Uint64:
			val = appendVarint(val, valUint, v.Uint())
		case table.Int64:
			val = appendVarint(val, valInt, uint64(v.Int()))
		case table.Float64:
			val = protowire.AppendTag(val, valDouble, protowire.Fixed64Type)
			val = protowire.AppendFixed64(val, doubleBits(f, v))
		case table.Bool:
			val = appendVarint(val, valBool, protowire.EncodeBool(v.Bool()))
		default:
			val = appendString(val, valString, strings.ToValidUTF8(v.Text(), "\ufffd"))
		}
	}
	return appendBytes(b, updateVal, val)
}

// appendUpdate appends an update to a Notification, made of its body (path and val) and the count
// of duplicates.
func appendUpdate(b, body []byte, duplicates uint32) []byte {
	b = protowire.AppendTag(b, noteUpdate, protowire.BytesType)
	size := len(body)
	if duplicates > 0 {
		size += 1 + protowire.SizeVarint(uint64(duplicates))
	}
	b = protowire.AppendVarint(b, uint64(size))
	b = append(b, body...)
	if duplicates > 0 {
		b = appendVarint(b, updateDuplicates, uint64(duplicates))
	}
	return b
}

// response returns a message that marshals to an encoded SubscribeResponse. The bytes must not
// change until the message has been sent.
func response(raw []byte) *gpb.SubscribeResponse {
	r := new(gpb.SubscribeResponse)
	r.ProtoReflect().SetUnknown(raw)
	return r
}

var syncResponse = mustMarshal(&gpb.SubscribeResponse{
	Response: &gpb.SubscribeResponse_SyncResponse{SyncResponse: true},
})

func mustMarshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // the message is a constant
	}
	return b
}

// SPDX-License-Identifier: Apache-2.0

// Package clusterv1 has the messages that the collectors of a cluster exchange over NATS, and what
// they store in JetStream.
package clusterv1

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Version is the version of the messages. Members refuse a member with another version. The version
// grows with each change of a message that changes the bytes of TestGolden.
const Version = 3

// Unmarshal decodes a message. A field that this version does not have is an error, because its
// contents would be lost.
func Unmarshal(data []byte, m proto.Message) error {
	if err := proto.Unmarshal(data, m); err != nil {
		return err
	}
	return Known(m)
}

// Known returns an error for a message with fields that this version does not have.
func Known(m proto.Message) error { return known(m.ProtoReflect()) }

func known(m protoreflect.Message) (err error) {
	if rest := m.GetUnknown(); len(rest) > 0 {
		number, _, _ := protowire.ConsumeTag(rest)
		return fmt.Errorf("field %d of %s is of another version of netsketch", number, m.Descriptor().Name())
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap(): // the values of maps are no messages
		case f.IsList():
			for i := 0; err == nil && i < v.List().Len(); i++ {
				err = known(v.List().Get(i).Message())
			}
		default:
			err = known(v.Message())
		}
		return err == nil
	})
	return err
}

// CheckVersion returns an error if a stored message is of another version.
func CheckVersion(protocol uint32) error {
	if protocol != Version {
		return fmt.Errorf("they are in version %d of the cluster's messages, and this collector has %d", protocol, Version)
	}
	return nil
}

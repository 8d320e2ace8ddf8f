// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"errors"
	"fmt"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/internal/files"
)

// ReadProgram reads a program from the files that p4c writes: the device config, which for BMv2 is
// JSON, and the P4Info in text format or binary. The program's name is the path of the device
// config.
func ReadProgram(deviceConfig, p4info string) (*Program, error) {
	config, err := files.ReadText(deviceConfig)
	text, infoErr := files.ReadText(p4info)
	if err = errors.Join(err, infoErr); err != nil {
		return nil, err
	}
	info := &p4configv1.P4Info{}
	if textErr := prototext.Unmarshal(text, info); textErr != nil {
		if err := proto.Unmarshal(text, info); err != nil {
			return nil, fmt.Errorf("%s is neither text-format nor binary P4Info: %w", p4info, textErr)
		}
	}
	// Nearly all bytes are valid binary P4Info, so a file without a known field is refused.
	if proto.Size(info) == len(info.ProtoReflect().GetUnknown()) {
		return nil, fmt.Errorf("%s has no part of a P4Info", p4info)
	}
	return &Program{Name: deviceConfig, DeviceConfig: config, P4Info: info}, nil
}

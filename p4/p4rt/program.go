// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"fmt"
	"os"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// ReadProgram reads a program from the files that p4c writes: the device config, which for BMv2 is
// JSON, and the P4Info in text format or binary. The program's name is the path of the device
// config.
func ReadProgram(deviceConfig, p4info string) (*Program, error) {
	config, err := os.ReadFile(deviceConfig)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(p4info)
	if err != nil {
		return nil, err
	}
	info := &p4configv1.P4Info{}
	if textErr := prototext.Unmarshal(text, info); textErr != nil {
		if err := proto.Unmarshal(text, info); err != nil {
			return nil, fmt.Errorf("%s is neither text-format nor binary P4Info: %w", p4info, textErr)
		}
	}
	return &Program{Name: deviceConfig, DeviceConfig: config, P4Info: info}, nil
}

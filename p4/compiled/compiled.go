// SPDX-License-Identifier: Apache-2.0

// Package compiled holds the compiled programs of p4/programs: for each the
// BMv2 JSON that a software switch executes and the P4Info that a P4Runtime
// controller needs. "make p4" renews the files; a test fails when they do not match
// the sources.
//
// The package has no state but the embedded files; everything in it is safe for
// concurrent use.
package compiled

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netsketch/netsketch/internal/suggest"
)

//go:embed *.json *.p4info.txtpb digests.txt
var files embed.FS

const (
	jsonSuffix = ".json"
	infoSuffix = ".p4info.txtpb"
)

// Program is a compiled P4 program.
type Program struct {
	Name   string
	JSON   []byte             // BMv2 JSON, also the p4_device_config for simple_switch_grpc
	P4Info *p4configv1.P4Info // control-plane view of the program
}

// Names returns the names of the programs, sorted.
func Names() []string {
	found, err := fs.Glob(files, "*"+jsonSuffix)
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for i, f := range found {
		found[i] = strings.TrimSuffix(f, jsonSuffix)
	}
	slices.Sort(found)
	return found
}

// Load returns a program by its name. Each call returns a copy that the caller owns.
// The error for an unknown name lists the programs.
func Load(name string) (*Program, error) {
	json, err := files.ReadFile(name + jsonSuffix)
	if err != nil {
		if near := suggest.Nearest(name, Names()); near != "" {
			return nil, fmt.Errorf("no compiled P4 program %q; did you mean %q?", name, near)
		}
		return nil, fmt.Errorf("no compiled P4 program %q; there are %s", name, strings.Join(Names(), ", "))
	}
	text, err := files.ReadFile(name + infoSuffix)
	if err != nil {
		return nil, fmt.Errorf("P4 program %s has no P4Info: run make p4: %w", name, err)
	}
	info := &p4configv1.P4Info{}
	if err := prototext.Unmarshal(text, info); err != nil {
		return nil, fmt.Errorf("P4Info of P4 program %s: %w", name, err)
	}
	return &Program{Name: name, JSON: json, P4Info: info}, nil
}

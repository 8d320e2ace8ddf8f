// SPDX-License-Identifier: Apache-2.0

// Bindgen writes yang/bindings/structs.go: what ygot's own generator would write, but
// gofmt'ed and without the place of the module cache in its header, so that the
// result is the same on every machine. Run it in yang/bindings, by go generate.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"os"

	"github.com/openconfig/ygot/genutil"
	"github.com/openconfig/ygot/gogen"
	"github.com/openconfig/ygot/ygen"
)

// modules are generated; what they import is found in the same folders.
var modules = []string{
	"../modules/netsketch-univmon.yang",
	"../modules/netsketch-collector.yang",
	"../modules/netsketch-p4rt-ids.yang",
	"../modules/netsketch-lldp.yang",
	"../modules/netsketch-platform.yang",
	"../modules/netsketch-system.yang",
	"../third_party/openconfig-interfaces.yang",
	"../third_party/openconfig-if-ethernet.yang",
}

func main() {
	if err := run("structs.go"); err != nil {
		fmt.Fprintln(os.Stderr, "bindgen:", err)
		os.Exit(1)
	}
}

func run(file string) error {
	compress, err := genutil.TranslateToCompressBehaviour(true, false, true)
	if err != nil {
		return err
	}
	generator := gogen.New("yang/internal/bindgen",
		ygen.IROptions{
			ParseOptions: ygen.ParseOpts{ExcludeModules: []string{"ietf-interfaces"}},
			TransformationOptions: ygen.TransformationOpts{
				CompressBehaviour:                    compress,
				GenerateFakeRoot:                     true,
				FakeRootName:                         "device",
				ShortenEnumLeafNames:                 true,
				EnumOrgPrefixesToTrim:                []string{"openconfig", "netsketch"},
				UseDefiningModuleForTypedefEnumNames: true,
				EnumerationsUseUnderscores:           true,
			},
		},
		gogen.GoOpts{
			PackageName:                         "bindings",
			GenerateJSONSchema:                  true,
			YgotImportPath:                      genutil.GoDefaultYgotImportPath,
			YtypesImportPath:                    genutil.GoDefaultYtypesImportPath,
			GoyangImportPath:                    genutil.GoDefaultGoyangImportPath,
			ValidateFunctionName:                "Validate",
			GenerateSimpleUnions:                true,
			AppendEnumSuffixForSimpleUnionEnums: true,
			IgnoreShadowSchemaPaths:             true,
		})
	code, errs := generator.Generate(modules, []string{"../modules", "../third_party"})
	if errs != nil {
		return fmt.Errorf("generating from %v: %w", modules, errs)
	}
	var out bytes.Buffer
	out.WriteString(code.CommonHeader)
	out.WriteString(code.OneOffHeader)
	for _, s := range code.Structs {
		fmt.Fprintln(&out, s.String())
	}
	for _, e := range code.Enums {
		fmt.Fprintln(&out, e)
	}
	fmt.Fprintln(&out, code.EnumMap)
	fmt.Fprintln(&out, code.JSONSchemaCode)
	fmt.Fprintln(&out, code.EnumTypeMap)
	text, err := format.Source(out.Bytes())
	if err != nil {
		return fmt.Errorf("formatting what was generated: %w", err)
	}
	return os.WriteFile(file, text, 0o644)
}

// SPDX-License-Identifier: Apache-2.0

// Bindgen writes yang/bindings/structs.go: the output of ygot's generator, formatted by gofmt and
// without the path of the module cache in its header, so that the result is the same on every
// machine. Run it in yang/bindings, by go generate.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openconfig/ygot/genutil"
	"github.com/openconfig/ygot/gogen"
	"github.com/openconfig/ygot/ygen"
)

// sources match the modules to generate: the bundled modules and the plugins' modules. Their
// imports are read from the same directories.
var sources = []string{
	"../modules/*.yang",
	"../third_party/openconfig-interfaces.yang",
	"../third_party/openconfig-if-ethernet.yang",
	"../../plugins/*/*/*.yang",
}

func main() {
	if err := run("structs.go"); err != nil {
		fmt.Fprintln(os.Stderr, "bindgen:", err)
		os.Exit(1)
	}
}

func run(file string) error {
	var modules []string
	for _, pattern := range sources {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("no file matches %s", pattern)
		}
		modules = append(modules, files...)
	}
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
	if err := unpackLater(code); err != nil {
		return err
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
	schema, err := schemaCode(code)
	if err != nil {
		return err
	}
	fmt.Fprintln(&out, schema)
	fmt.Fprintln(&out, code.EnumTypeMap)
	text, err := format.Source(bytes.ReplaceAll(out.Bytes(), []byte("SchemaTree["), []byte("SchemaTree()[")))
	if err != nil {
		return fmt.Errorf("formatting what was generated: %w", err)
	}
	return os.WriteFile(file, text, 0o644)
}

// unpackLater replaces the variable SchemaTree by a function, because filling the variable at each
// start of a program would take longer than the rest of the start. The function Schema returns the
// same tree, which no code changes, so it is unpacked only once.
func unpackLater(code *gogen.GeneratedCode) error {
	const (
		variable = "\tSchemaTree map[string]*yang.Entry\n"
		fill     = `	var err error
	initΛEnumTypes()
	if SchemaTree, err = UnzipSchema(); err != nil {
		panic("schema error: " +  err.Error())
	}
}
`
		function = `	initΛEnumTypes()
}

// SchemaTree returns the schema of each struct, by the struct's name. The first call unpacks it.
var SchemaTree = sync.OnceValue(func() map[string]*yang.Entry {
	tree, err := UnzipSchema()
	if err != nil {
		panic("schema error: " + err.Error())
	}
	return tree
})
`
		unpack = `	uzp, err := UnzipSchema()
	if err != nil {
		return nil, fmt.Errorf("cannot unzip schema, %v", err)
	}

`
	)
	for _, part := range [][2]string{{variable, ""}, {fill, function}, {unpack, ""}, {": uzp,", ": SchemaTree(),"}} {
		if strings.Count(code.OneOffHeader, part[0]) != 1 {
			return fmt.Errorf("ygot declares SchemaTree in another way: see unpackLater; no %q in %q", part[0],
				code.OneOffHeader)
		}
		code.OneOffHeader = strings.Replace(code.OneOffHeader, part[0], part[1], 1)
	}
	code.CommonHeader = strings.Replace(code.CommonHeader, "import (\n", "import (\n\t\"sync\"\n", 1)
	return nil
}

// schemaCode returns the code of the embedded schema. goyang lists the augments of a node in an
// order that varies from run to run; schemaCode sorts them.
func schemaCode(code *gogen.GeneratedCode) (string, error) {
	decoder := json.NewDecoder(bytes.NewReader(code.RawJSONSchema))
	decoder.UseNumber()
	var schema any
	if err := decoder.Decode(&schema); err != nil {
		return "", fmt.Errorf("the schema that was generated: %w", err)
	}
	if err := sortAugments(schema); err != nil {
		return "", err
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return "", err
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(text); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	const begin, end = "ySchema = []byte{", "\t}"
	head, rest, found := strings.Cut(code.JSONSchemaCode, begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", errors.New("ygot writes the schema in another way: see schemaCode")
	}
	var out strings.Builder
	out.WriteString(head + begin)
	for i, b := range packed.Bytes() {
		if i%16 == 0 {
			out.WriteString("\n\t\t")
		}
		fmt.Fprintf(&out, "0x%02x,", b)
	}
	out.WriteString("\n" + end + tail)
	return out.String(), nil
}

// sortAugments sorts the lists called Augmented in a node and below it by their text.
func sortAugments(node any) error {
	switch x := node.(type) {
	case []any:
		for _, v := range x {
			if err := sortAugments(v); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, v := range x {
			if err := sortAugments(v); err != nil {
				return err
			}
			list, ok := v.([]any)
			if key != "Augmented" || !ok {
				continue
			}
			texts := make([]json.RawMessage, len(list))
			for i, a := range list {
				text, err := json.Marshal(a)
				if err != nil {
					return err
				}
				texts[i] = text
			}
			slices.SortFunc(texts, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
			x[key] = texts
		}
	}
	return nil
}

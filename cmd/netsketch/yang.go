// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/ygot/ytypes"
	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/internal/files"
	"github.com/netsketch/netsketch/internal/program"
	"github.com/netsketch/netsketch/internal/suggest"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/bindings"
)

func yangCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "yang",
		Short: "Print YANG modules and validate JSON documents against them",
		Long: "Print YANG modules and validate JSON documents against them: the modules of the collector and of\n" +
			"switches, and those that the plugins of the directory bring.",
		Example: `  netsketch yang list
  netsketch yang show netsketch-univmon > netsketch-univmon.yang
  netsketch yang tree netsketch-collector
  netsketch yang validate snapshot.json`,
	}
	cmd.PersistentFlags().StringVar(&dir, "plugins", "", pluginsUsage)
	with := func(f func(m *models, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			m, err := loadModels(cmd.Context(), dir)
			if err != nil {
				return err
			}
			return f(m, cmd, args)
		}
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "List the modules with revision, OpenConfig version and source",
		Args:  cobra.NoArgs,
		RunE:  with((*models).list),
	}, &cobra.Command{
		Use:     "show MODULE",
		Short:   "Print the text of a module",
		Example: "  netsketch yang show netsketch-types",
		Args:    cobra.ExactArgs(1),
		RunE:    with((*models).show),
	}, &cobra.Command{
		Use:   "export DIR",
		Short: "Write all modules and what they import into a directory, one file each, for other tools",
		Long: "Write all modules and what they import into a directory, one file each, for other tools. The\n" +
			"directory is created; existing files are replaced.",
		Example: "  netsketch yang export modules && gnmic path --file modules/netsketch-univmon.yang --dir modules",
		Args:    cobra.ExactArgs(1),
		RunE:    with((*models).export),
	}, &cobra.Command{
		Use:   "tree [MODULE...]",
		Short: "Print modules as a tree, in the format of pyang -f tree (RFC 8340)",
		Long: "Print modules as a tree, in the format of pyang -f tree (RFC 8340). Without arguments: every " +
			"module with data nodes.",
		Example: "  netsketch yang tree netsketch-univmon netsketch-collector",
		RunE:    with((*models).tree),
	}, &cobra.Command{
		Use:   "validate FILE",
		Short: "Validate a JSON document (RFC 7951); - reads standard input",
		Long: "Validate a JSON document (RFC 7951); - reads standard input. The document is an object whose members\n" +
			"are top-level nodes with their module's name, such as \"netsketch-univmon:univmon\". It may be " +
			"partial:\n" +
			"leafrefs to nodes that are absent are accepted.",
		Example: "  netsketch yang validate snapshot.json",
		Args:    cobra.ExactArgs(1),
		RunE:    with((*models).check),
	})
	return cmd
}

// list prints a table of the modules.
func (m *models) list(cmd *cobra.Command, _ []string) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "MODULE\tREVISION\tVERSION\tSOURCE")
	for _, model := range m.schema.Models() {
		source := cmp.Or(m.texts[model.Name].Source, "netsketch")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", model.Name, model.Revision, model.Version, source)
	}
	return w.Flush()
}

// show prints the text of a module.
func (m *models) show(cmd *cobra.Command, args []string) error {
	text, ok := m.texts[args[0]]
	if !ok {
		return m.unknown(args[0])
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text.Text)
	return err
}

// export writes the modules into a directory.
func (m *models) export(cmd *cobra.Command, args []string) error {
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(m.texts)) {
		path := filepath.Join(args[0], name+".yang")
		if err := os.WriteFile(path, []byte(m.texts[name].Text), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", args[0], counted(len(m.texts), "module"))
	return nil
}

// tree prints modules as trees.
func (m *models) tree(cmd *cobra.Command, args []string) error {
	for _, name := range args {
		if _, ok := m.texts[name]; !ok {
			return m.unknown(name)
		}
	}
	for _, model := range m.schema.Models() {
		if slices.Contains(args, model.Name) || len(args) == 0 && model.Data {
			writeTree(cmd.OutOrStdout(), m.schema.Root(), model.Name)
		}
	}
	return nil
}

// check validates a file.
func (m *models) check(cmd *cobra.Command, args []string) error {
	doc, name := []byte(nil), args[0]
	var err error
	if name == "-" {
		name = "standard input"
		doc, err = io.ReadAll(cmd.InOrStdin())
	} else {
		doc, err = files.Read(name)
	}
	if err != nil {
		return err
	}
	if doc, err = files.Text(doc); err != nil {
		return fmt.Errorf("%s %w", name, err)
	}
	if err := m.validate(doc); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: valid\n", name)
	return nil
}

// models holds netsketch's modules and the modules of a plugin directory.
type models struct {
	texts  map[string]yang.Module // modules by name, including modules that are only imported
	schema *yang.Schema
}

// unknown returns the error for a module that does not exist.
func (m *models) unknown(name string) error {
	if near := suggest.Nearest(name, slices.Collect(maps.Keys(m.texts))); near != "" {
		return fmt.Errorf("no module %q; did you mean %q?", name, near)
	}
	return fmt.Errorf("no module %q: see `%s yang list`; modules of plugins need their directory, --plugins",
		name, program.Name())
}

// loadModels reads the modules. If there is no default plugin directory, it reads only the bundled
// ones.
func loadModels(ctx context.Context, dir string) (*models, error) {
	m := &models{texts: make(map[string]yang.Module)}
	bundled, err := yang.Bundled(yang.BundledNames()...)
	if err != nil {
		return nil, err
	}
	for _, module := range bundled {
		m.texts[module.Name] = module
	}
	modules := slices.Concat(yang.CollectorModules(), yang.SwitchModules())
	_, entries, err := catalog(ctx, dir)
	if err != nil && dir != "" {
		return nil, err
	}
	for _, e := range entries {
		for _, brought := range e.Description.Modules {
			module := yang.Module{Name: brought.Name, Text: brought.Text, Source: "plugin " + e.Name}
			modules = append(modules, module)
			m.texts[module.Name] = module
		}
	}
	m.schema, err = yang.Load(modules...)
	return m, err
}

// writeTree prints the nodes that a module defines: at the top of the tree, and where it augments
// nodes of other modules.
func writeTree(w io.Writer, root *yang.Node, module string) {
	fmt.Fprintf(w, "module: %s\n", module)
	var visit func(n *yang.Node)
	visit = func(n *yang.Node) {
		own := slices.DeleteFunc(slices.Clone(n.Children()), func(c *yang.Node) bool { return c.Module != module })
		if n.Module != module && len(own) > 0 {
			indent := "  "
			if n.Parent != nil {
				fmt.Fprintf(w, "\n  augment %s:\n", n.Path)
				indent = "    "
			}
			writeNodes(w, own, indent)
		}
		for _, c := range n.Children() {
			visit(c)
		}
	}
	visit(root)
}

// writeNodes prints siblings and the nodes of the same module below them.
func writeNodes(w io.Writer, nodes []*yang.Node, indent string) {
	width := 0
	for _, n := range nodes {
		width = max(width, len(n.Name))
	}
	for i, n := range nodes {
		access, mark := "ro", ""
		if n.Config {
			access = "rw"
		}
		switch {
		case n.Kind == yang.ListNode:
			mark = "* [" + strings.Join(n.KeyNames(), " ") + "]"
		case n.Kind == yang.LeafListNode:
			mark = "*"
		case n.Kind == yang.LeafNode && !n.Leaf.Mandatory && !slices.Contains(n.Parent.KeyNames(), n.Name):
			mark = "?"
		}
		line := fmt.Sprintf("%s+--%s %s%s", indent, access, n.Name, mark)
		if n.Leaf != nil {
			line = fmt.Sprintf("%s+--%s %-*s%s", indent, access, width+4, n.Name+mark, n.Leaf.Type.Base)
		}
		fmt.Fprintln(w, line)
		below := indent + "|  "
		if i == len(nodes)-1 {
			below = indent + "   "
		}
		writeNodes(w, slices.DeleteFunc(slices.Clone(n.Children()),
			func(c *yang.Node) bool { return c.Module != n.Module }), below)
	}
}

// validate checks a document: nodes of shipped modules against the generated bindings, others
// against the modules that the plugins bring.
func (m *models) validate(doc []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(doc, &members); err != nil {
		return fmt.Errorf("not a JSON object: %w", err)
	}
	device, err := bindings.Schema()
	if err != nil {
		return err
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(members)) {
		node := m.schema.Root().Child(name)
		switch {
		case !strings.Contains(name, ":"):
			problems = append(problems, fmt.Errorf("%q: a top-level member is \"module:name\" (RFC 7951, section 4)",
				name))
		case node == nil:
			problems = append(problems, fmt.Errorf("%q: no module has this top-level node; modules of plugins "+
				"need their directory, --plugins", name))
		case device.RootSchema().Dir[node.Name] != nil:
			if err := validateShipped(name, members[name]); err != nil {
				problems = append(problems, fmt.Errorf("%q: %w", name, err))
			}
		default:
			reader := yang.UpdateReader{Schema: m.schema, Found: func(yang.LeafUpdate) error { return nil }}
			value := &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: members[name]}}
			problems = append(problems, reader.Read([]*gpb.PathElem{{Name: name}}, value))
		}
	}
	return errors.Join(problems...)
}

// validateShipped checks a top-level node of a module that has bindings. The bindings have only one
// field for a leaf that exists as configuration and as state, so validateShipped makes two passes.
func validateShipped(name string, node json.RawMessage) error {
	doc, err := json.Marshal(map[string]json.RawMessage{name: node})
	if err != nil {
		return err
	}
	for _, options := range [][]ytypes.UnmarshalOpt{nil, {&ytypes.PreferShadowPath{}}} {
		root := &bindings.Device{}
		if err := bindings.Unmarshal(doc, root, options...); err != nil {
			return err
		}
		if err := root.Validate(&ytypes.LeafrefOptions{IgnoreMissingData: true}); err != nil {
			return err
		}
	}
	return nil
}

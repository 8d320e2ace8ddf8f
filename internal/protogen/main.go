// SPDX-License-Identifier: Apache-2.0

// Command protogen compiles the .proto files of a contract and runs protoc-gen-go and
// protoc-gen-go-grpc on them, as tools of this module. The same sources yield the same Go code on
// every machine.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// module is removed from the import paths of generated files to get their directories.
const module = "github.com/netsketch/netsketch"

func main() {
	root := flag.String("root", ".", "directory that imports in .proto files are relative to")
	out := flag.String("out", ".", "root of the Go module")
	flag.Parse()
	if err := run(context.Background(), *root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, out string) error {
	names, err := protoFiles(root)
	if err != nil {
		return err
	}
	request, err := compile(ctx, root, names)
	if err != nil {
		return err
	}
	for _, tool := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		request.Parameter = proto.String("module=" + module)
		if err := generate(ctx, tool, request, out); err != nil {
			return fmt.Errorf("%s: %w", tool, err)
		}
	}
	return nil
}

// protoFiles lists the .proto files under root, relative to it, sorted.
func protoFiles(root string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".proto" {
			return err
		}
		name, err := filepath.Rel(root, path)
		names = append(names, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list .proto files under %s: %w", root, err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no .proto files under %s", root)
	}
	sort.Strings(names)
	return names, nil
}

// compile builds the request that a protoc plugin reads: every file after the
// files it imports, comments included.
func compile(ctx context.Context, root string, names []string) (*pluginpb.CodeGeneratorRequest, error) {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, names...)
	if err != nil {
		return nil, err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: names}
	seen := make(map[string]bool)
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i).FileDescriptor)
		}
		request.ProtoFile = append(request.ProtoFile, descriptor(file))
	}
	for _, file := range files {
		add(file)
	}
	return request, nil
}

func descriptor(file protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	type wrapper interface {
		FileDescriptorProto() *descriptorpb.FileDescriptorProto
	}
	if own, ok := file.(wrapper); ok {
		return own.FileDescriptorProto()
	}
	return protodesc.ToFileDescriptorProto(file)
}

// generate runs one protoc plugin and writes the plugin's files below out.
func generate(ctx context.Context, tool string, request *pluginpb.CodeGeneratorRequest, out string) error {
	input, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", tool)
	cmd.Stdin = bytes.NewReader(input)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return fmt.Errorf("parse its output: %w", err)
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, file := range response.File {
		if strings.Contains(file.GetName(), "..") {
			return fmt.Errorf("refusing to write %q", file.GetName())
		}
		path := filepath.Join(out, filepath.FromSlash(file.GetName()))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

// Command sbom writes the modules that Go binaries contain as a CycloneDX document. It reads the
// linker's records in the binaries, and needs neither sources nor a network. The same binaries give
// the same document.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	version := flag.String("version", "unknown", "`version` of the binaries")
	flag.Parse()
	if err := write(*version, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(version string, binaries []string) error {
	if len(binaries) == 0 {
		return errors.New("no binary: expected sbom -version VERSION BINARY")
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: expected seconds since 1970: %w", err)
	}
	modules := make(map[string]cdx.Component) // by package URL
	var components []cdx.Component
	var dependencies []cdx.Dependency
	for _, path := range binaries {
		c, needs, err := read(path, version)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		maps.Copy(modules, needs)
		refs := slices.Sorted(maps.Keys(needs))
		components = append(components, c)
		dependencies = append(dependencies, cdx.Dependency{Ref: c.BOMRef, Dependencies: &refs})
	}
	for _, purl := range slices.Sorted(maps.Keys(modules)) {
		components = append(components, modules[purl])
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Component: &cdx.Component{
			BOMRef: "release", Type: cdx.ComponentTypeApplication, Name: "netsketch", Version: version,
		},
		Timestamp: time.Unix(seconds, 0).UTC().Format(time.RFC3339),
	}
	bom.Components, bom.Dependencies = &components, &dependencies
	return cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// read returns a binary and the modules in it, by package URL.
func read(path, version string) (binary cdx.Component, needs map[string]cdx.Component, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return binary, nil, err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return binary, nil, err
	}
	sum := sha256.Sum256(content)
	name := filepath.Base(path)
	binary = cdx.Component{
		BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: version,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}
	needs = make(map[string]cdx.Component)
	add := func(path, version, sum string) {
		purl := "pkg:golang/" + strings.ToLower(path) + "@" + url.QueryEscape(version)
		m := cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
		if sum != "" {
			m.Properties = &[]cdx.Property{{Name: "go:sum", Value: sum}}
		}
		needs[purl] = m
	}
	add("std", info.GoVersion, "")
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		add(m.Path, m.Version, m.Sum)
	}
	return binary, needs, nil
}

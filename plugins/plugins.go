// SPDX-License-Identifier: Apache-2.0

// Package plugins has a directory for each built-in plugin, and the directory sdk for plugin
// authors. `make generate` writes the JSON Schema of each built-in plugin's configuration and the
// table of its keys in docs.
package plugins

//go:generate env UPDATE=1 go test . -run TestReference

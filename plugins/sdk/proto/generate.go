// SPDX-License-Identifier: Apache-2.0

// Package proto holds the protobuf contract between the collector and its plugins, and generates
// the Go code of package pluginv1 from it. It needs only the Go tool: the compiler is a library,
// and the two generators are tools of the module.
package proto

//go:generate go run ../../../internal/protogen -root . -out ../../..

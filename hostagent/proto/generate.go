// SPDX-License-Identifier: Apache-2.0

// Package proto holds the protobuf contract between host agents and the collector. The Go code of
// package hostv1 is generated from it.
package proto

//go:generate go run ../../internal/protogen -root . -out ../..

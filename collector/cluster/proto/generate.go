// SPDX-License-Identifier: Apache-2.0

// Package proto holds the messages that the collectors of a cluster exchange. The Go code of
// package clusterv1 is generated from it.
package proto

//go:generate go run ../../../internal/protogen -root . -out ../../..

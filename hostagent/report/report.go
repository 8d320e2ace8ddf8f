// SPDX-License-Identifier: Apache-2.0

// Package report receives telemetry reports of switches over UDP and passes them to roles.
package report

import (
	"errors"
	"log/slog"

	"github.com/netsketch/netsketch/hostagent/role"
)

// ErrUnsupported is the error of systems other than Linux.
var ErrUnsupported = errors.New("receiving telemetry reports needs Linux")

// Path receives datagrams. agent.RolePath implements it.
type Path interface {
	Receive(datagrams []role.Datagram)
}

// Receiver receives telemetry reports.
type Receiver struct {
	// Address is host:port of UDP. Without a host it is every address of IPv4 and IPv6.
	Address string
	// Sockets is the count of sockets with this address, at least 1: the kernel distributes senders
	// over them, and each has a goroutine.
	Sockets int
	Logger  *slog.Logger // nil disables logging
}

// Stats counts datagrams.
type Stats struct {
	Received uint64
	// Dropped were dropped by the kernel, because the buffer of a socket was full.
	Dropped uint64
}

// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"log/slog"
	"time"
)

// DefaultCPUPort is BMv2's usual CPU port.
const DefaultCPUPort = 255

// DropPort is the egress_spec by which v1model drops a packet.
const DropPort = 511

// Config is how a Switch runs. The zero value is usable.
type Config struct {
	Name     string               // for the log
	Clock    func() time.Duration // time since the switch started; nil: the wall clock. Used where no time is given: PacketOut, idle timeouts
	CPUPort  uint32               // 0: DefaultCPUPort
	Seed     uint64               // of random()
	Parallel int                  // packets that may run at once; 0 and 1: one after another
	MaxLoops int                  // resubmits plus recirculations a packet may make before it is dropped and counted; 0: 64
	Logger   *slog.Logger         // nil: discards
}

// Stats count what happened to packets, since the last Load.
type Stats struct {
	Packets        uint64 // packets that entered, loops not counted
	ParserErrors   uint64 // packets whose parser ended in an error (they go on, as in BMv2)
	ChecksumErrors uint64
	IngressDrops   uint64 // dropped at the end of ingress
	EgressDrops    uint64 // dropped at the end of egress
	NoPortDrops    uint64 // sent to a port that is not there or down
	QueueDrops     uint64 // egress queue full
	LoopDrops      uint64 // MaxLoops reached
	NoProgramDrops uint64
	PacketIns      uint64
	PacketOuts     uint64
	Clones         uint64
	Replicas       uint64 // multicast copies
	Resubmits      uint64
	Recirculations uint64
	Digests        uint64
	DigestDrops    uint64 // no subscriber had room
	IndexErrors    uint64 // register, counter or meter index out of range: the operation did nothing
	AssertFailures uint64 // assert() or assume() was false: the packet was dropped
	TooLong        uint64 // packets outgrew the limit of 64 KiB
}

// SPDX-License-Identifier: Apache-2.0

package machine

// Stats counts packets by outcome since the last Load.
type Stats struct {
	Packets        uint64 // packets that entered, without loops
	ParserErrors   uint64 // packets whose parser ended in an error; they continue, as in BMv2
	ChecksumErrors uint64
	IngressDrops   uint64 // dropped at the end of ingress
	EgressDrops    uint64 // dropped at the end of egress
	NoPortDrops    uint64 // sent to a port that does not exist or is down
	QueueDrops     uint64 // egress queue full
	LoopDrops      uint64 // MaxLoops reached
	NoProgramDrops uint64
	GroupDrops     uint64 // sent to a multicast group without replicas
	Trapped        uint64 // taken by the switch's own software instead of the pipeline
	PacketIns      uint64
	PacketOuts     uint64
	Clones         uint64
	Replicas       uint64 // multicast copies
	Resubmits      uint64
	Recirculations uint64
	Digests        uint64
	DigestDrops    uint64 // no subscriber had room
	IndexErrors    uint64 // index of a register, counter or meter out of range: no effect
	AssertFailures uint64 // assert() or assume() was false: the packet was dropped
	TooLong        uint64 // packets that exceeded 256 KiB on arrival or later
}

func (t *Stats) Add(o *Stats) {
	t.Packets += o.Packets
	t.ParserErrors += o.ParserErrors
	t.ChecksumErrors += o.ChecksumErrors
	t.IngressDrops += o.IngressDrops
	t.EgressDrops += o.EgressDrops
	t.LoopDrops += o.LoopDrops
	t.GroupDrops += o.GroupDrops
	t.Clones += o.Clones
	t.Replicas += o.Replicas
	t.Resubmits += o.Resubmits
	t.Recirculations += o.Recirculations
	t.Digests += o.Digests
	t.IndexErrors += o.IndexErrors
	t.AssertFailures += o.AssertFailures
	t.TooLong += o.TooLong
}

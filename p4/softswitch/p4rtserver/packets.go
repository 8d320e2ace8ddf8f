// SPDX-License-Identifier: Apache-2.0

package p4rtserver

import (
	"slices"
	"sync"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver/entities"
)

// packetPath is the part of the pipeline for packets to and from the controller. It is immutable.
type packetPath struct {
	in, out *p4values.Header // nil: packets have no controller header
}

func newPacketPath(cat *p4values.Catalog) *packetPath {
	return &packetPath{in: cat.PacketIn, out: cat.PacketOut}
}

// packetOut runs a controller's packet. An error is reported on the stream.
func (s *Server) packetOut(st *stream, m *p4v1.PacketOut) error {
	if !s.isPrimary(st) {
		return status.Error(codes.PermissionDenied, "only the primary controller sends packets")
	}
	path := s.packets.Load()
	if path == nil {
		return status.Error(codes.FailedPrecondition, "no pipeline has been set")
	}
	pkt, err := path.serialize(st.pkt, m)
	if err != nil {
		return err
	}
	st.pkt = pkt
	s.stats.packetOuts.Add(1)
	return entities.Status(s.sw.PacketOut(pkt))
}

// serialize writes the controller header and the payload to buf if that is large enough. Each field
// of the header must be given exactly once.
func (p *packetPath) serialize(room []byte, m *p4v1.PacketOut) ([]byte, error) {
	if p.out == nil {
		if len(m.GetMetadata()) > 0 {
			return nil, status.Errorf(codes.InvalidArgument, "the program has no packet_out header, hence no metadata")
		}
		return append(room[:0], m.GetPayload()...), nil
	}
	n := p.out.Len()
	pkt := append(slices.Grow(room[:0], n+len(m.GetPayload()))[:n], m.GetPayload()...)
	clear(pkt[:n])
	var given uint64
	for _, f := range m.GetMetadata() {
		i := p.out.ByID(f.GetMetadataId())
		if i < 0 {
			return nil, status.Errorf(codes.InvalidArgument, "the packet_out header has no metadata with id %d",
				f.GetMetadataId())
		}
		if i < 64 && given&(1<<i) != 0 {
			return nil, status.Errorf(codes.InvalidArgument, "metadata %q is given twice", p.out.Fields[i].Name)
		}
		given |= 1 << i
		if err := p.out.Put(pkt[:n], i, f.GetValue()); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "%v", err)
		}
	}
	if len(m.GetMetadata()) != len(p.out.Fields) {
		for i, f := range p.out.Fields {
			if given&(1<<i) == 0 {
				return nil, status.Errorf(codes.InvalidArgument, "metadata %q is missing", f.Name)
			}
		}
	}
	return pkt, nil
}

// inPacket is a packet for a controller, in reused memory.
type inPacket struct {
	message p4v1.StreamMessageResponse
	packet  *p4v1.PacketIn
	all     []p4v1.PacketMetadata
	bytes   []byte
	release func()
}

var inPackets sync.Pool

func newInPacket() *inPacket {
	if p, ok := inPackets.Get().(*inPacket); ok {
		return p
	}
	p := &inPacket{packet: &p4v1.PacketIn{}}
	p.message.Update = &p4v1.StreamMessageResponse_Packet{Packet: p.packet}
	p.release = func() { inPackets.Put(p) }
	return p
}

// parse splits a packet of the switch into controller header and payload; nil if the packet is too
// short.
func (p *packetPath) parse(pkt []byte) *inPacket {
	n, fields := 0, 0
	if p.in != nil {
		n, fields = p.in.Len(), len(p.in.Fields)
	}
	if len(pkt) < n {
		return nil
	}
	m := newInPacket()
	m.bytes = append(m.bytes[:0], pkt...) // the switch reuses its slice
	m.packet.Payload, m.packet.Metadata = m.bytes[n:], m.packet.Metadata[:0]
	if len(m.all) < fields {
		m.all = make([]p4v1.PacketMetadata, fields)
	}
	for i := range fields {
		f := &m.all[i]
		f.MetadataId, f.Value = p.in.Fields[i].ID, p.in.Get(m.bytes[:n], i)
		m.packet.Metadata = append(m.packet.Metadata, f)
	}
	return m
}

// packetIn queues a packet that leaves by the CPU port for the primaries. It does not wait.
func (s *Server) packetIn(pkt []byte) {
	s.stats.packetIns.Add(1)
	path := s.packets.Load()
	if path == nil {
		s.stats.packetsDropped.Add(1)
		return
	}
	took := false
	if m := path.parse(pkt); m != nil {
		var room [4]*stream
		to := s.primaries(room[:0])
		release := m.release
		if len(to) > 1 {
			release = nil // the memory is not reused
		}
		for _, st := range to {
			if st.offerAnd(&m.message, release) {
				took = true
			} else {
				s.stats.packetsMissed.Add(1)
			}
		}
	}
	if !took {
		s.stats.packetsDropped.Add(1)
	}
}

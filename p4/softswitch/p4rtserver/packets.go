// SPDX-License-Identifier: Apache-2.0

package p4rtserver

import (
	"bytes"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// packetPath is what packets to and from the controller need of the pipeline. It is immutable.
type packetPath struct {
	in, out *p4values.Header // nil: packets have no controller header
}

func newPacketPath(cat *p4values.Catalog) *packetPath {
	return &packetPath{in: cat.PacketIn, out: cat.PacketOut}
}

// packetOut takes a controller's packet and runs it. An error is reported on the stream.
func (s *Server) packetOut(st *stream, m *p4v1.PacketOut) error {
	if !s.isPrimary(st) {
		return status.Error(codes.PermissionDenied, "only the primary controller sends packets")
	}
	path := s.packets.Load()
	if path == nil {
		return status.Error(codes.FailedPrecondition, "no pipeline has been set")
	}
	pkt, err := path.serialise(m)
	if err != nil {
		return err
	}
	s.stats.packetOuts.Add(1)
	return toStatus(s.sw.PacketOut(pkt))
}

// serialise puts the controller header in front of the payload. Each field of it must be given exactly once.
func (p *packetPath) serialise(m *p4v1.PacketOut) ([]byte, error) {
	if p.out == nil {
		if len(m.GetMetadata()) > 0 {
			return nil, invalid("the program has no packet_out header, hence no metadata")
		}
		return m.GetPayload(), nil
	}
	n := p.out.Len()
	pkt := make([]byte, n+len(m.GetPayload()))
	copy(pkt[n:], m.GetPayload())
	var given uint64
	for _, f := range m.GetMetadata() {
		i := p.out.ByID(f.GetMetadataId())
		if i < 0 {
			return nil, invalid("the packet_out header has no metadata with id %d", f.GetMetadataId())
		}
		if i < 64 && given&(1<<i) != 0 {
			return nil, invalid("metadata %q is given twice", p.out.Fields[i].Name)
		}
		given |= 1 << i
		if err := p.out.Put(pkt[:n], i, f.GetValue()); err != nil {
			return nil, invalid("%v", err)
		}
	}
	if len(m.GetMetadata()) != len(p.out.Fields) {
		for i, f := range p.out.Fields {
			if given&(1<<i) == 0 {
				return nil, invalid("metadata %q is missing", f.Name)
			}
		}
	}
	return pkt, nil
}

// parse takes the controller header off a packet of the switch. It returns nil where the packet is shorter than that.
func (p *packetPath) parse(pkt []byte) *p4v1.PacketIn {
	if p.in == nil {
		return &p4v1.PacketIn{Payload: bytes.Clone(pkt)}
	}
	n := p.in.Len()
	if len(pkt) < n {
		return nil
	}
	pkt = bytes.Clone(pkt) // the switch uses its slice again
	fields := make([]p4v1.PacketMetadata, len(p.in.Fields))
	m := &p4v1.PacketIn{Payload: pkt[n:], Metadata: make([]*p4v1.PacketMetadata, len(fields))}
	for i, f := range p.in.Fields {
		fields[i].MetadataId, fields[i].Value = f.ID, p.in.Get(pkt[:n], i)
		m.Metadata[i] = &fields[i]
	}
	return m
}

// packetIn takes a packet that leaves on the CPU port and queues it for the primaries. It never waits.
func (s *Server) packetIn(pkt []byte) {
	s.stats.packetIns.Add(1)
	path := s.packets.Load()
	if path == nil {
		s.stats.packetsDropped.Add(1)
		return
	}
	m := path.parse(pkt)
	took := false
	if m != nil {
		for _, st := range s.primaries() {
			if st.offer(&p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Packet{Packet: m}}) {
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

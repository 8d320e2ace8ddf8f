// SPDX-License-Identifier: Apache-2.0

// The parser of packets of host roles in the kernel, and the count of segments of super-packets:
// packets up to 64 KB or more that the kernel or the device segments after the program that sends, or
// has merged before the program that receives.
//
// A program reads a packet with
//
//	parse         at TC: the flow, lengths and fields of IP, TCP and UDP
//	segments      at TC: how many packets a packet is on the wire; XDP has no super-packets
//	divided_at    at TC: where the data begins that these packets divide, behind all their headers
//	shorten       at TC: removes bytes in front of the payload
//	parse_link    elsewhere: the EtherType and the offset of the IP header, behind VLAN tags
//	parse_ip      elsewhere: what parse reads, of an IP packet
//	skip_mark     then: the flow behind OmniMon's option of IPv6
//
// The last three read through pointers: data and end are those of the context of XDP or TC, or of the
// memory of a map. All offsets and fields are in host order; only addresses in keys are in network
// order. Offsets in struct headers are from the begin of the IP header.

#ifndef NETSKETCH_PACKET_H
#define NETSKETCH_PACKET_H

#include "common.h"

// EtherTypes besides those in common.h.
enum {
	ETH_BRIDGED = 0x6558, // an Ethernet frame
	ETH_MPLS = 0x8847,
	ETH_MPLS_MULTICAST = 0x8848,
	ETH_PPPOE = 0x8864,
};

// Protocols of IP, and extension headers of IPv6.
enum {
	HOP_BY_HOP = 0,
	IPV4_IN_IP = 4,
	IPV6_IN_IP = 41,
	ROUTING = 43,
	GRE = 47,
	AH = 51,
	DESTINATIONS = 60,
	MOBILITY = 135,
	MPLS_IN_IP = 137,
	HIP = 139,
	SHIM6 = 140,
};

inline u16 load16(const void *p) { return bpf_ntohs(*(const u16 *)p); }

// key is the key of a flow, as docs/p4.md defines it under Packets.
struct key {
	u64 src[2], dst[2]; // in network order; an IPv4 address is the first four bytes
	u16 sport, dport;   // in host order
	u8 proto, v6;
	u16 zero;
};

// headers are what parse_ip reads of a packet. Offsets are from the begin of the IP header.
struct headers {
	struct key key;
	u32 ip;       // offset of the IP header in the frame, if parse read the packet
	u32 l4;       // offset of what follows the IP header and a fragment header
	u32 payload;  // offset of what follows the TCP or UDP header; other protocols have the value of l4
	u32 length;   // length of the IP packet in bytes; a super-packet counts with all its data
	u16 type;     // EtherType, if parse read the packet
	u16 window;   // the window of TCP
	u8 ttl, dscp; // TTL or hop limit
	u8 flags;     // the flags of TCP
	u8 offset;    // the data offset of TCP in the upper half, reserved bits in the lower half
	bool reserved_ip; // the reserved flag of IPv4 is set
	bool tcp;       // the packet has a TCP header
	bool fragment;  // the packet is a fragment
	bool later;     // the packet is a fragment, and not the first one
	bool cut;       // the TCP or UDP header ends early, after its ports
	bool addressed; // key has the addresses, although the packet may have another error
};

// Results of parse_ip.
enum {
	PARSED,
	PARSE_NOT_IP,    // the EtherType is neither IPv4 nor IPv6
	PARSE_TRUNCATED, // a header ends early
	PARSE_VERSION,   // the version of IP differs from the EtherType
	PARSE_LENGTH,    // the length of an IPv4 header is below 20 bytes
};

// parse_link returns the offset of what follows the Ethernet header and at most the given count (0
// to 2) of VLAN tags, and its EtherType; 0 if the frame is truncated. At TC, a tag may be outside of
// the packet: then skb->vlan_present is 1, and one tag less may follow.
inline u32 parse_link(const void *data, const void *end, u32 tags, u16 *type) {
	if (data + 14 > end)
		return 0;
	*type = load16(data + 12);
	if (tags < 1 || !is_tag(*type))
		return 14;
	if (data + 18 > end)
		return 0;
	*type = load16(data + 16);
	if (tags < 2 || !is_tag(*type))
		return 18;
	if (data + 22 > end)
		return 0;
	*type = load16(data + 20);
	return 22;
}

// is_jumbo returns whether a hop-by-hop header states the length of a super-packet above 64 KB; b
// is its second byte. No such header is on the wire, because the kernel removes it when it segments
// the packet.
inline bool is_jumbo(const u8 *b) { return (*(u32 *)b & 0xffffff) == 0x04c200; }

// parse_ip parses the IP packet at b, whose EtherType is known, and its TCP or UDP header. most is
// the number of bytes from b to the end of the frame. It is the length of a super-packet above 64
// KB, whose own length field is 0. A fragment header right behind the fixed IPv6 header is skipped;
// any other extension header is the protocol of the flow.
inline u32 parse_ip(const u8 *b, const void *end, u16 type, u32 most, struct headers *h) {
	u32 l4;
	__builtin_memset(h, 0, sizeof(*h));
	if (type == ETH_IPV4) {
		if ((void *)b + 20 > end)
			return PARSE_TRUNCATED;
		h->key.src[0] = *(u32 *)(b + 12);
		h->key.dst[0] = *(u32 *)(b + 16);
		h->addressed = true;
		if (b[0] >> 4 != 4)
			return PARSE_VERSION;
		l4 = (b[0] & 15) * 4;
		if (l4 < 20)
			return PARSE_LENGTH;
		if ((void *)b + l4 > end)
			return PARSE_TRUNCATED;
		u16 offset = load16(b + 6);
		h->length = load16(b + 2);
		if (!h->length && most > 0xffff)
			h->length = most;
		h->key.proto = b[9];
		h->later = offset & 0x1fff;
		h->fragment = offset & 0x3fff;
		h->reserved_ip = offset & 0x8000;
		h->ttl = b[8];
		h->dscp = b[1] >> 2;
	} else if (type == ETH_IPV6) {
		if ((void *)b + 40 > end)
			return PARSE_TRUNCATED;
		h->key.v6 = 1;
		h->key.src[0] = *(u64 *)(b + 8);
		h->key.src[1] = *(u64 *)(b + 16);
		h->key.dst[0] = *(u64 *)(b + 24);
		h->key.dst[1] = *(u64 *)(b + 32);
		h->addressed = true;
		if (b[0] >> 4 != 6)
			return PARSE_VERSION;
		l4 = 40;
		h->length = 40 + load16(b + 4);
		h->key.proto = b[6];
		h->ttl = b[7];
		h->dscp = load16(b) >> 6 & 0x3f;
		if (h->length == 40 && most > 0xffff) {
			h->length = most;
			if (b[6] == HOP_BY_HOP && (void *)b + 48 <= end && is_jumbo(b + 41)) {
				h->key.proto = b[40];
				h->length -= 8;
				l4 = 48;
			}
		} else if (b[6] == FRAGMENT) {
			if ((void *)b + 48 > end)
				return PARSE_TRUNCATED;
			h->key.proto = b[40];
			h->later = load16(b + 42) & 0xfff8;
			h->fragment = true;
			l4 = 48;
		}
	} else {
		return PARSE_NOT_IP;
	}
	h->l4 = h->payload = l4;
	if (h->later || (h->key.proto != TCP && h->key.proto != UDP))
		return PARSED;
	b += l4 & 63;
	if ((void *)b + 4 > end)
		return PARSE_TRUNCATED;
	h->key.sport = load16(b);
	h->key.dport = load16(b + 2);
	if (h->key.proto == UDP) {
		h->cut = (void *)b + 8 > end;
		h->payload += 8;
		return PARSED;
	}
	if ((void *)b + 20 > end) {
		h->cut = true;
		return PARSED;
	}
	u32 size = (b[12] >> 4) * 4;
	h->payload += size < 20 ? 20 : size;
	h->tcp = true;
	h->offset = b[12];
	h->flags = b[13];
	h->window = load16(b + 14);
	return PARSED;
}

// skip_mark replaces the flow of an IPv6 packet that has OmniMon's option right behind the fixed
// header by the flow behind the option, which is that of the packet as its host sent it. key is what
// parse_ip read of the packet at b. A packet that ends early keeps its flow.
inline void skip_mark(const u8 *b, const void *end, struct key *k) {
	enum { HEADER = 40, MARK = 0x3e, LEAST = 8, MOST = 30 }; // bytes of the fields in the option
	if (!k->v6 || k->proto != DESTINATIONS || (void *)b + HEADER + 16 > end)
		return;
	u32 fields = b[HEADER + 3], size = 8 * (b[HEADER + 1] + 1u);
	u8 proto = b[HEADER];
	bool later = false;
	if (b[HEADER + 2] != MARK || fields < LEAST || fields > MOST || size != ((4 + fields + 7) & ~7u))
		return;
	b += HEADER + (size & 63);
	if ((void *)b + 8 > end)
		return;
	if (proto == FRAGMENT) {
		proto = b[0];
		later = load16(b + 2) & 0xfff8;
		b += 8;
	}
	if (!later && (proto == TCP || proto == UDP)) {
		if ((void *)b + 8 > end)
			return;
		k->sport = load16(b);
		k->dport = load16(b + 2);
	}
	k->proto = proto;
}

// parse reads the headers of a packet at TC and returns a result of parse_ip. At most two VLAN tags
// follow the Ethernet header; one of them may be outside of the packet.
inline u32 parse(struct __sk_buff *skb, struct headers *h) {
	enum { LONGEST = 14 + 2 * 4 + 60 + 20 }; // bytes of the headers that are read
	u32 tags = skb->vlan_present ? 1 : 2, ip = 0, result = PARSE_TRUNCATED;
	u16 type = 0;
	for (u32 i = 0; i < 2; i++) {
		void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
		ip = parse_link(data, end, tags, &type);
		h->cut = false;
		if (ip)
			result = parse_ip(data + (ip & 31), end, type, skb->len - ip, h);
		if (result != PARSE_TRUNCATED && !h->cut)
			break;
		// The first bytes of some packets are not in one piece of memory.
		u32 have = end - data, want = skb->len < LONGEST ? skb->len : LONGEST;
		if (have >= want || bpf_skb_pull_data(skb, want))
			break;
	}
	h->ip = ip;
	h->type = type;
	return result;
}

// is_whole returns whether a parsed packet has its complete TCP or UDP header, and a length of at
// least the IP header.
inline bool is_whole(const struct headers *h) { return !h->cut && h->length >= h->l4; }

// Kinds of headers in divided_at, besides EtherTypes.
enum {
	PROTOCOL = 0x10000, // added to the number of an IP protocol
	IN_UDP = 0x20000,
	FOLLOWED = 24, // headers that are followed, at most
};

// in_udp returns the kind of the packet that a UDP tunnel carries, and adds the length of the
// tunnel's headers to at. It returns 0 if the UDP data, which begin at b, are no known tunnel.
// Tunnels are recognized by their headers, because their ports can be configured.
inline u32 in_udp(const u8 *b, u32 *at) {
	u16 type = load16(b + 2);
	if ((b[0] & 0x7f) == 0x08 && !(b[1] & ~0x48)) { // VXLAN, also with group policies
		*at += 8;
		return ETH_BRIDGED;
	}
	if (b[0] == 0x0c && !b[2]) { // VXLAN GPE
		*at += 8;
		return b[3] == 1 ? ETH_IPV4 : b[3] == 2 ? ETH_IPV6 : b[3] == 3 ? ETH_BRIDGED : 0;
	}
	if (b[0] >> 6 == 0 && (type == ETH_BRIDGED || type == ETH_IPV4 || type == ETH_IPV6)) { // Geneve
		*at += 8 + (b[0] & 0x3f) * 4;
		return type;
	}
	return b[0] >> 4 == 4 ? ETH_IPV4 : b[0] >> 4 == 6 ? ETH_IPV6 : 0; // FOU
}

// reaches returns whether an IP packet extends to the end of a super-packet. field is the value of
// its length field, which is 0 above 64 KB and does not include header bytes; rest is the number of
// bytes that are left, header included.
inline bool reaches(u32 field, u32 header, u32 rest) { return field ? field + header == rest : rest > 0xffff; }

// divided_at returns the offset of the data that the segments of a super-packet divide, which is
// behind the innermost TCP or UDP header. Each segment repeats all bytes before it. It follows the
// headers from offset at, of which the first has EtherType type: all extension headers of IPv6, and
// the tunnels IP in IP, GRE, MPLS, VXLAN, Geneve and FOU. An inner packet that ends before the
// super-packet does belongs to the data of a segment.
part u32 divided_at(struct __sk_buff *skb, u32 at, u32 type) {
	u32 found = at, kind = type, rest;
	for (u32 i = 0; i < FOLLOWED; i++) {
		u8 b[20] = {};
		if (at >= skb->len)
			return found;
		rest = skb->len - at;
		if (bpf_skb_load_bytes(skb, at, b, sizeof(b)) && bpf_skb_load_bytes(skb, at, b, 8))
			return found;
		switch (kind) {
		case ETH_BRIDGED:
			kind = load16(b + 12);
			at += 14;
			continue;
		case ETH_VLAN:
		case ETH_QINQ:
		case ETH_QINQ_OLD:
			kind = load16(b + 2);
			at += 4;
			continue;
		case ETH_MPLS:
		case ETH_MPLS_MULTICAST:
			at += 4;
			if (b[2] & 1)
				kind = b[4] >> 4 == 4 ? ETH_IPV4 : b[4] >> 4 == 6 ? ETH_IPV6 : 0;
			continue;
		case ETH_IPV4:
			if (b[0] >> 4 != 4 || (b[0] & 15) < 5 || !reaches(load16(b + 2), 0, rest))
				return found;
			kind = PROTOCOL | b[9];
			at += (b[0] & 15) * 4;
			break;
		case ETH_IPV6:
			if (b[0] >> 4 != 6 || !reaches(load16(b + 4), 40, rest))
				return found;
			kind = PROTOCOL | b[6];
			at += 40;
			break;
		case PROTOCOL | HOP_BY_HOP:
		case PROTOCOL | ROUTING:
		case PROTOCOL | DESTINATIONS:
		case PROTOCOL | MOBILITY:
		case PROTOCOL | HIP:
		case PROTOCOL | SHIM6:
			kind = PROTOCOL | b[0];
			at += 8 * (b[1] + 1);
			break;
		case PROTOCOL | AH:
			kind = PROTOCOL | b[0];
			at += 4 * (b[1] + 2);
			break;
		case PROTOCOL | IPV4_IN_IP:
			kind = ETH_IPV4;
			continue;
		case PROTOCOL | IPV6_IN_IP:
			kind = ETH_IPV6;
			continue;
		case PROTOCOL | MPLS_IN_IP:
			kind = ETH_MPLS;
			continue;
		case PROTOCOL | GRE:
			if (b[0] & 0x40 || b[1] & 7) // source routes, or a version other than 0
				return found;
			kind = load16(b + 2);
			at += 4 + 4 * ((b[0] >> 7) + (b[0] >> 5 & 1) + (b[0] >> 4 & 1)); // optional checksum, key and sequence number
			continue;
		case PROTOCOL | TCP:
			return at + ((b[12] >> 4) < 5 ? 20 : (b[12] >> 4) * 4);
		case PROTOCOL | UDP:
			kind = IN_UDP;
			at += 8;
			break;
		case IN_UDP:
			kind = in_udp(b, &at);
			continue;
		default:
			return found;
		}
		found = at;
	}
	return found;
}

// segments returns how many packets a packet at TC is on the wire: the segments into which the
// kernel or the device divides it when it leaves, or from which it was merged when it arrived. The
// kernel does not count the segments of super-packets of a virtual machine, or of packets to which
// a program added bytes.
inline u32 segments(struct __sk_buff *skb) {
	u32 n = skb->gso_segs, size = skb->gso_size;
	if (n || !size)
		return n ? n : 1;
	u32 at = divided_at(skb, 0, ETH_BRIDGED);
	return at < skb->len ? (skb->len - at + size - 1) / size : 1;
}

// shorten removes size bytes, an even number, behind the headers of an IP packet, and writes count
// bytes of headers (at most 512) from the IP header on. If it fails, it returns false and the
// packet is unchanged. The caller computes the checksums in the headers.
inline bool shorten(struct __sk_buff *skb, const void *headers, u32 count, u32 size) {
	// The kernel removes bytes of IP packets only, so a VLAN tag in the packet is taken off first
	// and put back afterwards.
	bool tagged = is_tag(bpf_ntohs(skb->protocol));
	u16 tag[2] = { skb->vlan_proto, skb->vlan_tci };
	if (tagged && !skb->vlan_present) {
		if (bpf_skb_load_bytes(skb, 12, tag, 4))
			return false;
		tag[1] = bpf_ntohs(tag[1]);
	}
	if (tagged && bpf_skb_vlan_pop(skb))
		return false;
	bool done = !bpf_skb_adjust_room(skb, -(s32)size, BPF_ADJ_ROOM_NET,
					 BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET);
	asm volatile("" : "+r"(count)); // the verifier derives the range of the count from the mask
	count = ((count - 1) & 511) + 1;
	if (done)
		bpf_skb_store_bytes(skb, 14, headers, count, BPF_F_RECOMPUTE_CSUM);
	if (tagged)
		bpf_skb_vlan_push(skb, tag[0], tag[1]);
	return done;
}

#endif

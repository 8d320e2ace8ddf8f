// SPDX-License-Identifier: Apache-2.0

// SketchINT's host role in the kernel. It measures the same packets, towers and counts as package
// hostagent/sketchint. A program reads INT, measures it, and removes it: receive at TC, or
// receive_first at XDP, which runs before the kernel merges packets.
//
// Each processor writes to a lane of its own, so nothing is locked. There are two groups of
// everything that belongs to an interval. The agent switches between them, and reads and clears the
// group that no processor uses any more.

#define CRC_BYTES 4
#include "../../../kernel/bpf/packet.h"

enum {
	VXLAN_PORT = 4789,    // VXLAN, not VXLAN GPE
	VXLAN_NEXT = 4,       // flag: the header states a next protocol
	GENEVE_OPTIONS = 252, // bytes of Geneve options, at most
	MAX_SHIMS = 8,        // INT headers of a packet in VXLAN, at most
	FRONT = 192,          // bytes of a frame that are always read: all headers before INT, and short INT
	BUFFER = 1 << 14,     // more than all headers and the longest INT
	INNER = 22 + 60 + 20, // bytes of the headers of a packet in GRE, at most
	GROUPS = 2,
	SETS = 1 << 11,
	WAYS = 8,
	CACHED_HOPS = 6,
	MAX_HOPS = 64,
	MAX_SOURCE_ONLY = 8,
	FLOW_ROWS = 5,
	MAX_NODES = 1 << 14,
	MAX_QUEUES = 1 << 14,
	MAX_FAULTS = 1 << 10,
	NEXT = -1, // TCX: the next program decides
};

// Problems, as in package inband.
enum {
	NONE,
	ABSENT,
	NOT_IP,
	MALFORMED,
	TRUNCATED,
	LENGTH_MISMATCH,
	FRAGMENTED,
	UNKNOWN_TYPE,
	UNKNOWN_VERSION,
	BAD_HOP_LENGTH,
	BAD_STACK_LENGTH,
	TOO_MANY_HOPS,
	UNKNOWN_DOMAIN,
	NO_NODE_ID,
	PROBLEMS = 16,
	MORE, // not a problem: more bytes of the frame are needed
};

// Counters, as in package wire.
enum {
	PACKETS,
	WITH_INT,
	INT_BYTES,
	HOPS,
	NO_LATENCY,
	COPIES,
	MTU_EXCEEDED,
	HOP_LIMIT,
	UNKNOWN_INSTRUCTION,
	REPORTS,
	REPORTS_NO_FLOW,
	DROPS,
	FAULTS_FULL,
	DROPPED,
	HEAVY_FULL,
	INFLATED_FULL,
	NODES_FULL,
	SOURCES_FULL,
	UNREAD,
	COUNTERS,
};

// Carriers, as in package inband.
enum {
	CARRIER_TCP = 1,
	CARRIER_UDP,
	CARRIER_UDP_PORT,
	CARRIER_UDP_ENCAP,
	CARRIER_GRE,
	CARRIER_GRE_ENCAP,
	CARRIER_VXLAN,
	CARRIER_VXLAN_ENCAP,
	CARRIER_GENEVE,
};

enum { MD = 1, DESTINATION, MX };

enum { INVALID = 0xffffffff };

// Tables whose number of rows is bounded in an interval.
enum { HEAVY, INFLATED, NODES, FAULTS, QUEUES, TABLES };

// Settings; they do not change while the program is loaded.
volatile const u8 mark_dscp;
volatile const u8 mark_dscp_mask;
volatile const u8 before_options;
volatile const u8 vxlan_next;
volatile const u8 geneve_type;
volatile const u16 udp_port;
volatile const u16 gre_type;
volatile const u16 vxlan_port;
volatile const u16 geneve_port;
volatile const u16 geneve_class;
volatile const u64 probe; // in network order
volatile const u32 source_only; // rows of the next three settings
volatile const u16 source_domain[MAX_SOURCE_ONLY];
volatile const u16 source_instruction[MAX_SOURCE_ONLY];
volatile const u8 source_words[MAX_SOURCE_ONLY];
volatile const u32 flow_words;    // words of each row in the tower of flows
volatile const u32 latency_words; // words of each row in the tower of latencies
volatile const u32 heavy_packets;
volatile const u32 factor; // a latency above factor / 256 times the mean is inflated
volatile const u32 limits[TABLES];

// hop has the latencies of a cached flow at a switch: packets with a latency, the sum of their
// latencies, and the worst latency. Packets and sum include the values that the tower had when the
// hop entered the cache.
struct hop {
	u64 sum;
	u32 packets, worst;
};

// entry is a cached flow with its latest path: five cache lines. A packet with five hops or fewer
// accesses the first two.
struct entry {
	u64 src, dst; // first halves of the addresses
	u64 label;    // the other fields of the key, or 0
	u64 route;    // hash of the flow and of its path
	u32 crc;      // state of CRC-32 after the key
	u32 packets;
	u32 heavy_at; // packets at which the flow enters the table of heavy flows; INVALID: it has entered
	u16 changes;  // changes of the path before the flow entered that table
	u8 hops;      // hops of the path; 0 if no packet had a path
	u8 zero;
	struct hop hop[CACHED_HOPS];
	u32 node[CACHED_HOPS];
	u32 inflated[CACHED_HOPS]; // by hop: latencies that were inflated when they arrived
	// by hop: packets and latencies that the tower had when the hop entered the cache
	u32 before[CACHED_HOPS];
	u64 sum_before[CACHED_HOPS];
	u64 src_low, dst_low; // second halves of IPv6 addresses
	u64 zeros[5];
};

// set has the parts of a set's entries that are needed to choose one of them.
struct set {
	u64 tags;       // 8 bits of the hash of each way
	u32 seen[WAYS]; // packets of each way while in the cache; 0 if the way is free
	u64 zero[3];    // fills a cache line
};

struct entry_set {
	struct entry entry[WAYS];
};

struct counts {
	u64 problems[PROBLEMS], versions[16], counters[24];
};

struct flow_id {
	u32 group, zero;
	struct key key;
};

struct heavy_flow {
	u32 changes, hops;
	u32 path[MAX_HOPS]; // the latest hop first
};

struct place {
	u32 group, node;
	struct key key;
};

struct inflated_flow {
	u32 packets, worst;
};

struct node_id {
	u32 group, node;
};

struct node_counts {
	u64 packets, sum, worst;
};

struct queue_id {
	u32 group, node, id;
};

struct queue_counts {
	u64 packets, timed, sum, occupancy, worst;
};

struct fault_id {
	u64 address[2];
	u16 v6, group;
	u32 problem;
};

struct control_block {
	u32 active; // the group that measures
	u32 zero;
	u32 used[GROUPS * TABLES]; // used rows, by group and table
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct control_block);
} control SEC(".maps");

// The next five maps hold values by lane and group, and within these by set or word.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counts);
} lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct set);
} sets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct entry_set);
} cache SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} latencies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct flow_id);
	__type(value, struct heavy_flow);
} heavy SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct place);
	__type(value, struct inflated_flow);
} inflated SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GROUPS * MAX_NODES);
	__type(key, struct node_id);
	__type(value, struct node_counts);
} nodes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GROUPS * MAX_QUEUES);
	__type(key, struct queue_id);
	__type(value, struct queue_counts);
} queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GROUPS * MAX_FAULTS);
	__type(key, struct fault_id);
	__type(value, u64);
} faults SEC(".maps");

// packet is the packet that is being read. Offsets are from the begin of the frame.
struct packet {
	struct key key;
	u32 ip, l4, at, shim; // offsets of headers, of INT, and of the shim header
	u32 length, size;     // length of the IP packet; of INT, or 0 if nothing is to be removed
	u32 stack, hop;       // offset of the first hop; bytes of a hop
	u32 latency_at, in_at, out_at; // offsets within a hop; a queue follows the latency
	u16 hops, bitmap;
	u8 carrier, kind, version, flags, mtu, remaining, next;
	u8 has_latency, has_in, has_out;
	u8 addressed; // whether the source address was read
	u8 no_flow;   // whether the original packet in GRE is not IP
};

// reading has the metadata that a hop wrote.
struct reading {
	u32 node, latency;
};

struct scratch {
	u8 bytes[BUFFER + 512];
	u32 length, have; // bytes of the frame; number of them that are in bytes
	u32 packets;      // packets on the wire
	u32 tags;         // VLAN tags that the frame may have
	u64 route;        // hash of the packet's flow and of its path
	struct packet packet;
	struct key inner; // flow of the original packet in GRE
	struct reading hops[MAX_HOPS];
	struct heavy_flow heavy;
	struct place place;
	struct flow_id flow;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

inline struct scratch *scratch(void) {
	u32 zero = 0;
	return bpf_map_lookup_elem(&scratches, &zero);
}

inline struct control_block *state(void) {
	u32 zero = 0;
	return bpf_map_lookup_elem(&control, &zero);
}

inline struct counts *counts_of(u32 slot) { return bpf_map_lookup_elem(&lanes, &slot); }

inline u8 read8(const struct scratch *s, u32 at) { return s->bytes[at & (BUFFER - 1)]; }
inline u16 raw16(const struct scratch *s, u32 at) { return *(u16 *)(s->bytes + (at & (BUFFER - 1))); }
inline u32 raw32(const struct scratch *s, u32 at) { return *(u32 *)(s->bytes + (at & (BUFFER - 1))); }
inline u64 raw64(const struct scratch *s, u32 at) { return *(u64 *)(s->bytes + (at & (BUFFER - 1))); }
inline u16 read16(const struct scratch *s, u32 at) { return bpf_ntohs(raw16(s, at)); }
inline u32 read32(const struct scratch *s, u32 at) { return bpf_ntohl(raw32(s, at)); }
inline u64 read64(const struct scratch *s, u32 at) { return bpf_be64_to_cpu(raw64(s, at)); }
inline void write8(struct scratch *s, u32 at, u8 v) { s->bytes[at & (BUFFER - 1)] = v; }
inline void write_raw16(struct scratch *s, u32 at, u16 v) { *(u16 *)(s->bytes + (at & (BUFFER - 1))) = v; }

inline u32 ones(u32 v) { // leading ones of a 16-bit number
	v = v - (v >> 1 & 0x5555);
	v = (v & 0x3333) + (v >> 2 & 0x3333);
	v = (v + (v >> 4)) & 0x0f0f;
	return (v + (v >> 8)) & 31;
}

// words returns the length of the metadata that instructions request, without domain-specific
// metadata.
inline u32 words(u8 version, u16 bitmap) {
	u32 n = ones(bitmap) + (bitmap >> 9 & 1);
	if (version != 1)
		n += (bitmap >> 11 & 1) + (bitmap >> 10 & 1);
	return n;
}

// stack finds the hops of a stack. The length of the stack and the words of a hop are given.
inline u32 find_hops(struct scratch *s, struct packet *p, u32 length, u32 hop_words, u16 domain, u16 instructions) {
	if (!length)
		return NONE;
	u32 known = words(p->version, p->bitmap), extra = 0;
	if (hop_words < known || !hop_words)
		return BAD_HOP_LENGTH;
	u32 hop = hop_words * 4;
	if (instructions) {
		bool found = false;
		for (u32 i = 0; i < MAX_SOURCE_ONLY; i++) {
			if (i >= source_only || source_domain[i] != domain)
				continue;
			found = true;
			if (source_instruction[i] & instructions)
				extra += source_words[i] * 4;
		}
		if (!found && (hop_words == known || length % hop))
			return UNKNOWN_DOMAIN;
	}
	u32 n = (length - extra) / hop;
	if (length < extra || n * hop != length - extra)
		return BAD_STACK_LENGTH;
	if (n > MAX_HOPS)
		return TOO_MANY_HOPS;
	if (!(p->bitmap & 0x8000))
		return NO_NODE_ID;
	p->hops = n;
	p->hop = hop;
	u32 b = p->bitmap;
	p->has_latency = b >> 13 & 1;
	p->has_in = b >> 11 & 1;
	p->has_out = b >> 10 & 1;
	p->latency_at = 4 + 4 * (b >> 14 & 1);
	p->in_at = p->latency_at + 4 * ((b >> 13 & 1) + (b >> 12 & 1));
	p->out_at = p->in_at + (p->version == 1 ? 4 : 8) * (b >> 11 & 1);
	return NONE;
}

// metadata reads the metadata header at an offset. length is the number of bytes from there to the
// end of INT.
inline u32 metadata(struct scratch *s, struct packet *p, u32 at, u32 length) {
	if (length < 4)
		return TRUNCATED;
	u8 first = read8(s, at);
	u32 header = 12;
	p->version = first >> 4;
	if (p->version == 1) {
		header = 8;
		p->flags = (first << 2 & 0x08) | (first << 2 & 0x04);
		p->mtu = read8(s, at + 1) >> 7;
	} else if (p->version == 2) {
		p->flags = first & 0x0c;
		p->mtu = first >> 1 & 1;
	} else {
		return UNKNOWN_VERSION;
	}
	if (length < header)
		return TRUNCATED;
	p->remaining = read8(s, at + 3);
	p->bitmap = read16(s, at + 4);
	u16 domain = 0, instructions = 0;
	if (p->version == 2) {
		domain = read16(s, at + 6);
		instructions = read16(s, at + 8);
	}
	p->stack = at + header;
	return find_hops(s, p, length - header, read8(s, at + 2) & 0x1f, domain, instructions);
}

// next_int returns whether a next protocol of VXLAN GPE is INT.
inline bool next_int(u8 protocol) {
	return vxlan_next ? protocol == vxlan_next : protocol == 0x08 || protocol == 0x80;
}

part u32 geneve_option(void);

// locate sets the carrier and the offset of INT. It returns false if there is no INT. available is
// the end of the bytes that were read; more is set if they are too few.
inline bool locate(struct scratch *s, struct packet *p, u8 dscp, bool tcp, u32 available, bool *more) {
	u32 l4 = p->l4;
	if (p->key.proto == TCP) {
		u32 header = 20;
		if (!before_options && tcp) {
			header = (read8(s, l4 + 12) >> 4) * 4;
			if (header < 20)
				header = 20;
		}
		p->carrier = CARRIER_TCP;
		p->at = l4 + header;
	} else if (p->key.proto == UDP) {
		u16 port = p->key.dport;
		p->carrier = CARRIER_UDP;
		p->at = l4 + 8;
		if (!port) {
			// a later fragment
		} else if (port == udp_port) {
			p->carrier = CARRIER_UDP_PORT;
			return true;
		} else if (port == vxlan_port) {
			if (available >= p->at + 8 && read8(s, p->at) & VXLAN_NEXT && next_int(read8(s, p->at + 3))) {
				p->carrier = CARRIER_VXLAN;
				p->at += 8;
				return true;
			}
		} else if (port == geneve_port) {
			u32 at = geneve_option();
			*more = at == MORE;
			if (at && !*more) {
				p->carrier = CARRIER_GENEVE;
				p->at = at;
				return true;
			}
		}
	} else if (p->key.proto == GRE) {
		u8 first = read8(s, l4);
		if (!gre_type || available < l4 + 4 || read16(s, l4 + 2) != gre_type || first & 0x40)
			return false;
		p->carrier = CARRIER_GRE;
		p->at = l4 + 4 + 4 * ((first >> 7) + (first >> 5 & 1) + (first >> 4 & 1)); // optional checksum, key and number
		return true;
	} else {
		return false;
	}
	if (probe && available >= p->at + 8 && raw64(s, p->at) == probe)
		return true;
	return mark_dscp_mask && (dscp & mark_dscp_mask) == mark_dscp;
}

// load_front copies the first bytes of the frame, at most FRONT.
inline bool load_front(struct xdp_md *xdp, struct scratch *s) {
	u32 size = s->have;
	const u64 *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	if (data + FRONT / 8 <= end) {
		u64 *to = (u64 *)s->bytes;
#pragma unroll
		for (u32 i = 0; i < FRONT / 8; i++)
			to[i] = data[i];
		return true;
	}
	asm volatile("" : "+r"(size)); // the verifier derives the range of the size from the mask
	size = ((size - 1) & 255) + 1;
	return size <= FRONT && !bpf_xdp_load_bytes(xdp, 0, s->bytes, size);
}

// store_front writes the first bytes of the frame back, which are more than 16.
inline void store_front(struct xdp_md *xdp, struct scratch *s, u32 size) {
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	u32 at = 0;
	for (; at + 8 <= size && at < 192; at += 8) {
		u64 *to = data + at;
		if ((void *)(to + 1) > end)
			break;
		*to = raw64(s, at);
	}
	u32 last = (size - 8) & 255; // the rest; some bytes are written twice
	u64 *to = data + last;
	if (at + 8 > size && (void *)(to + 1) <= end) {
		*to = raw64(s, last);
		return;
	}
	asm volatile("" : "+r"(size)); // the frame is in fragments, or has long Geneve options
	size = ((size - 1) & 511) + 1;
	bpf_xdp_store_bytes(xdp, 0, s->bytes, size);
}

// has returns whether all bytes before an offset, or all bytes of the frame, were read.
inline bool has(const struct scratch *s, u32 end) { return s->have >= (end < s->length ? end : s->length); }

// geneve_option returns the offset of the INT option among the Geneve options behind UDP. It
// returns 0 if there is none, or MORE.
part u32 geneve_option(void) {
	struct scratch *s = scratch();
	if (!s)
		return 0;
	u32 length = s->length, at = s->packet.at;
	if (length < at + 8)
		return 0;
	u32 end = at + 8 + (read8(s, at) & 0x3f) * 4;
	if (end > length)
		end = length;
	if (!has(s, end))
		return MORE;
	at += 8;
	for (u32 i = 0; i < GENEVE_OPTIONS / 4 && at + 4 <= end; i++) {
		if (read16(s, at) == geneve_class && read8(s, at + 2) == geneve_type)
			return at;
		at += 4 + (read8(s, at + 3) & 0x1f) * 4;
	}
	return 0;
}

// int_end returns the end of the bytes that INT may occupy by the lengths in the IP and UDP
// headers.
inline u32 int_end(const struct scratch *s, const struct packet *p, u32 length, u32 *end) {
	u32 last = p->ip + p->length;
	*end = last;
	if (p->key.proto == UDP)
		*end = p->l4 + read16(s, p->l4 + 4);
	return *end > last || last > length ? LENGTH_MISMATCH : NONE;
}

// read_shim reads the shim header at an offset.
inline u32 read_shim(const struct scratch *s, u32 at, u32 end, u8 *kind, u32 *size) {
	if (at + 4 > end)
		return LENGTH_MISMATCH;
	u8 first = read8(s, at);
	*kind = first >> 4;
	*size = 4 + read8(s, at + 1) * 4;
	if (!*kind) { // version 1.0
		*kind = first;
		*size = read8(s, at + 2) * 4;
	}
	if (*kind < MD || *kind > MX || *size < 4)
		return UNKNOWN_TYPE;
	return at + *size > end ? LENGTH_MISMATCH : NONE;
}

// int_headers reads the shim header and the INT that follows it, behind TCP or UDP.
inline u32 int_headers(struct scratch *s, struct packet *p, u32 length) {
	u32 end, size, problem = int_end(s, p, length, &end);
	if (problem)
		return problem;
	u32 at = p->at;
	if (probe && p->carrier <= CARRIER_UDP && at + 8 <= end && raw64(s, at) == probe)
		at += 8;
	u8 kind;
	problem = read_shim(s, at, end, &kind, &size);
	if (problem)
		return problem;
	if (!has(s, at + size + 8))
		return MORE;
	p->kind = kind;
	if (kind != DESTINATION)
		problem = metadata(s, p, at + 4, size - 4);
	p->shim = at;
	p->size = at + size - p->at;
	if (p->carrier != CARRIER_UDP_PORT)
		return problem;
	p->next = read8(s, at + 3);
	switch (read8(s, at) >> 2 & 3) {
	case 1:
		p->key.dport = read16(s, at + 2);
		return problem;
	case 2:
		break;
	default:
		p->size = 0;
		return UNKNOWN_TYPE;
	}
	p->carrier = CARRIER_UDP_ENCAP;
	p->key.proto = p->next;
	p->key.sport = 0;
	p->key.dport = 0;
	at += size;
	if (p->next == TCP || p->next == UDP) {
		if (at + 8 > p->ip + p->length) {
			p->size = 0;
			return MALFORMED;
		}
		p->key.sport = read16(s, at);
		p->key.dport = read16(s, at + 2);
	}
	return problem;
}

// inside reads the flow of the packet that the INT source encapsulated in GRE.
part int inside(void) {
	struct scratch *s = scratch();
	if (!s)
		return MALFORMED; // unreachable
	struct packet *p = &s->packet;
	u32 at = p->at + p->size;
	if (!has(s, at + INNER))
		return MORE;
	const u8 *b = s->bytes + (at & (BUFFER - 1)), *end = s->bytes + (s->have & (2 * BUFFER - 1));
	u16 type = read16(s, p->shim + 2);
	if (type == ETH_BRIDGED) {
		u32 ip = parse_link(b, end, 2, &type);
		if (!ip) {
			p->size = 0;
			return MALFORMED;
		}
		b += ip & 31;
	}
	struct headers h;
	p->no_flow = parse_ip(b, end, type, 0, &h) != PARSED || !is_whole(&h);
	s->inner = h.key;
	return NONE;
}

// tunnel_metadata calls metadata. The verifier checks it as a function of its own.
part u32 tunnel_metadata(u32 at, u32 length) {
	struct scratch *s = scratch();
	return s ? metadata(s, &s->packet, at, length) : MALFORMED;
}

// tunnel reads INT in GRE, VXLAN or Geneve.
part u32 tunnel(void) {
	struct scratch *s = scratch();
	if (!s)
		return MALFORMED; // unreachable
	struct packet *p = &s->packet;
	u32 length = s->length, at = p->at, end, size = 0, problem = int_end(s, p, length, &end);
	if (problem)
		return problem;
	if (p->carrier == CARRIER_GENEVE) {
		u32 options = p->l4 + 16 + (read8(s, p->l4 + 8) & 0x3f) * 4;
		if (end > options)
			end = options;
		size = 4 + (read8(s, at + 3) & 0x1f) * 4;
		if (at + size > end)
			return LENGTH_MISMATCH;
		p->kind = MD;
		p->shim = at;
		p->size = size;
		return tunnel_metadata(at + 4, size - 4);
	}
	u8 read = DESTINATION;
	for (u32 i = 0; i < MAX_SHIMS; i++) {
		u8 kind;
		u32 bad = read_shim(s, at, end, &kind, &size);
		if (bad) {
			p->size = 0;
			return bad;
		}
		if (!has(s, at + size + 4))
			return MORE;
		if (kind != DESTINATION && read == DESTINATION) { // other kinds are skipped
			read = kind;
			problem = tunnel_metadata(at + 4, size - 4);
		}
		p->kind = read;
		p->shim = at;
		at += size;
		p->size = at - p->at;
		if (p->carrier == CARRIER_VXLAN && next_int(read8(s, p->shim + 3)))
			continue;
		u8 first = read8(s, p->shim);
		if (p->carrier == CARRIER_VXLAN) {
			if (first >> 4 && read8(s, p->shim + 2) & 0x80) {
				p->carrier = CARRIER_VXLAN_ENCAP;
				p->key.dport = VXLAN_PORT;
			}
			return problem;
		}
		if (!(first >> 4)) { // version 1.0 has no INT in GRE
			p->size = 0;
			return UNKNOWN_TYPE;
		}
		if (!(first & 8))
			return problem;
		p->carrier = CARRIER_GRE_ENCAP;
		bad = inside();
		return bad ? bad : problem;
	}
	p->size = 0;
	return UNKNOWN_TYPE;
}

// decode reads a packet and returns its problem, or MORE if more bytes of the frame are needed.
part int decode(void) {
	struct scratch *s = scratch();
	if (!s)
		return MALFORMED; // unreachable
	struct packet *p = &s->packet;
	u32 length = s->length, have = s->have & (2 * BUFFER - 1);
	__builtin_memset(p, 0, sizeof(*p));
	if (have < 14)
		return MALFORMED;
	const u8 *end = s->bytes + have;
	u16 type;
	p->ip = parse_link(s->bytes, end, s->tags, &type);
	if (!p->ip)
		return MALFORMED;
	struct headers h;
	u32 result = parse_ip(s->bytes + (p->ip & 31), end, type, length - p->ip, &h);
	p->key = h.key;
	p->addressed = h.addressed;
	if (result == PARSE_NOT_IP)
		return NOT_IP;
	if (result != PARSED || !is_whole(&h))
		return MALFORMED;
	p->length = h.length;
	p->l4 = p->ip + (h.fragment && h.key.v6 ? 40 : h.l4);
	bool more = false;
	if (!locate(s, p, h.dscp, h.tcp, have < FRONT ? have : FRONT, &more)) {
		skip_mark(s->bytes + (p->ip & 31), end, &p->key); // switches insert no INT behind it
		return more ? MORE : ABSENT;
	}
	if (h.fragment)
		return FRAGMENTED;
	u32 problem = p->carrier >= CARRIER_GRE ? tunnel() : int_headers(s, p, length);
	if (!p->size)
		p->hops = 0;
	return problem;
}

inline u32 hop_latency(const struct scratch *s, const struct packet *p, u32 at) {
	if (p->has_latency) {
		u32 v = read32(s, at + p->latency_at);
		if (v != INVALID)
			return v;
	}
	if (!p->has_in || !p->has_out)
		return INVALID;
	if (p->version == 1) {
		u32 in = read32(s, at + p->in_at), out = read32(s, at + p->out_at);
		return in != INVALID && out != INVALID && out - in < 1u << 31 ? out - in : INVALID;
	}
	u64 in = read64(s, at + p->in_at), out = read64(s, at + p->out_at);
	return in + 1 && out + 1 && out - in < INVALID ? out - in : INVALID;
}

// read_hops copies the node ids and latencies of the hops, the latest hop first.
part int read_hops(void) {
	struct scratch *s = scratch();
	if (!s)
		return 0;
	struct packet *p = &s->packet;
	u32 at = p->stack, n = p->hops, hop = p->hop;
	for (u32 i = 0; i < MAX_HOPS; i++) {
		if (i >= n)
			break;
		s->hops[i].node = read32(s, at);
		s->hops[i].latency = hop_latency(s, p, at);
		at += hop;
	}
	return 0;
}

// take_row reserves a row of a table. It returns false if the table is full.
inline bool take_row(u32 slot, u32 table) {
	struct control_block *c = state();
	if (!c)
		return false;
	u32 *used = &c->used[(slot & 1) * TABLES + table];
	if (__sync_fetch_and_add(used, 1) < limits[table])
		return true;
	__sync_fetch_and_add(used, -1);
	return false;
}

inline void give_row(u32 slot, u32 table) {
	struct control_block *c = state();
	if (c)
		__sync_fetch_and_add(&c->used[(slot & 1) * TABLES + table], -1);
}

// queue_of returns the counts of a queue, or null if there is no room for it.
inline struct queue_counts *queue_of(u32 slot, const struct queue_id *id) {
	struct queue_counts none = {}, *q = bpf_map_lookup_elem(&queues, id);
	if (q || !take_row(slot, QUEUES))
		return q;
	if (bpf_map_update_elem(&queues, id, &none, BPF_NOEXIST))
		give_row(slot, QUEUES); // another processor added it, or there is no memory
	return bpf_map_lookup_elem(&queues, id);
}

// measure_queues measures the queues of the hops that read_hops has copied.
part int measure_queues(u32 slot) {
	struct scratch *s = scratch();
	struct counts *c = counts_of(slot);
	if (!s || !c)
		return 0;
	struct packet *p = &s->packet;
	u32 at = p->stack + p->latency_at + 4 * p->has_latency, n = p->hops, hop = p->hop, packets = s->packets;
	for (u32 i = 0; i < MAX_HOPS; i++) {
		if (i >= n)
			break;
		u32 v = read32(s, at), node = s->hops[i].node, latency = s->hops[i].latency;
		at += hop;
		if (v == INVALID)
			continue;
		struct queue_id id = { .group = slot & 1, .node = node == INVALID ? 0 : node, .id = v >> 24 };
		struct queue_counts *q = queue_of(slot, &id);
		if (!q) {
			c->counters[NODES_FULL] += packets;
			continue;
		}
		v &= 0xffffff;
		q->packets += packets;
		q->occupancy += (u64)v * packets;
		if (v > q->worst)
			q->worst = v;
		if (latency != INVALID) {
			q->timed += packets;
			q->sum += (u64)latency * packets;
		}
	}
	return 0;
}

// crc_of returns the state of CRC-32 after the canonical bytes of a key.
inline u32 crc_of(const struct key *k) {
	u32 crc = crc4(INVALID, k->src[0]);
	if (k->v6)
		crc = crc4(crc4(crc4(crc, k->src[0] >> 32), k->src[1]), k->src[1] >> 32);
	crc = crc4(crc, k->dst[0]);
	if (k->v6)
		crc = crc4(crc4(crc4(crc, k->dst[0] >> 32), k->dst[1]), k->dst[1] >> 32);
	u16 sport = bpf_htons(k->sport), dport = bpf_htons(k->dport);
	crc = crc4(crc, k->proto | (u32)sport << 8 | (u32)dport << 24);
	return crc1(crc, dport >> 8);
}

inline u32 odd(u32 row) {
	switch (row) {
	case 0:
		return 0x9e3779b1;
	case 1:
		return 0x85ebca6b;
	case 2:
		return 0xc2b2ae35;
	case 3:
		return 0x27d4eb2f;
	}
	return 0x165667b1;
}

// column returns rowhash.Mix modulo a width.
inline u32 column(u32 digest, u32 row, u32 width) {
	return ~crc4(INVALID, __builtin_bswap32(digest * odd(row))) % width;
}

inline u64 least(u64 a, u64 b) { return a < b ? a : b; }

// flow_counter returns the word of a counter in the tower of flows, and the bit at which the
// counter begins.
inline u64 *flow_counter(u32 slot, u32 digest, u32 row, u32 *shift) {
	u32 log = 5 - row; // log2 of the counters in a word: 32 of 2 bits to 2 of 32
	u32 col = column(digest, row, flow_words << log);
	u32 at = (slot * FLOW_ROWS + row) * flow_words + (col >> log);
	*shift = (col & ((1 << log) - 1)) << (row + 1);
	return bpf_map_lookup_elem(&flows, &at);
}

inline u64 flow_mask(u32 row) { return (1ull << (2 << row)) - 1; }

part int add_flow(u32 slot, u32 digest, u32 packets) {
#pragma unroll
	for (u32 row = 0; row < FLOW_ROWS; row++) {
		u32 shift;
		u64 mask = flow_mask(row), *word = flow_counter(slot, digest, row, &shift);
		if (!word)
			return 0; // unreachable
		u64 v = *word >> shift & mask;
		*word += (least(v + packets, mask) - v) << shift;
	}
	return 0;
}

// query_flow returns the estimate of a flow. It returns all ones if all counters have overflowed.
part u32 query_flow(u32 slot, u32 digest) {
	u64 n = INVALID;
#pragma unroll
	for (u32 row = 0; row < FLOW_ROWS; row++) {
		u32 shift;
		u64 mask = flow_mask(row), *word = flow_counter(slot, digest, row, &shift);
		if (!word)
			return 0; // unreachable
		u64 v = *word >> shift & mask;
		if (v != mask)
			n = least(n, v);
	}
	return n;
}

// The lower bits of a bucket count packets: 8 bits of 32, 16 of 44, and 24 of 64.
inline u32 packet_bits(u32 row) { return 8 * (row + 1); }
inline u32 bucket_bits(u32 row) { return row == 0 ? 32 : row == 1 ? 44 : 64; }
inline u64 bucket_mask(u32 row) { return ~0ull >> (64 - bucket_bits(row)); }

// bucket is a place in the tower of latencies. high is the second word of a bucket that takes two
// words.
struct bucket {
	u64 *low, *high;
	u32 shift;
};

// find_bucket finds a bucket. It returns false if the tower has no such place, which does not
// happen.
inline bool find_bucket(u32 slot, u32 digest, u32 row, struct bucket *b) {
	u32 size = bucket_bits(row), width = row == 0 ? latency_words * 2 : row == 1 ? latency_words * 16 / 11 : latency_words;
	u32 bit = column(digest, row, width) * size, at = (slot * 3 + row) * latency_words + bit / 64;
	b->shift = bit % 64;
	b->high = 0;
	b->low = bpf_map_lookup_elem(&latencies, &at);
	if (b->shift + size <= 64)
		return b->low;
	at++;
	b->high = bpf_map_lookup_elem(&latencies, &at);
	return b->low && b->high;
}

inline u64 read_bucket(const struct bucket *b, u32 row) {
	u64 v = *b->low >> b->shift;
	if (b->high)
		v |= *b->high << (64 - b->shift);
	return v & bucket_mask(row);
}

inline u32 node_digest(u32 crc, u32 node) { return ~crc4(crc, bpf_htonl(node)); }

// leave adds the latencies of a flow at a switch to the tower of latencies and to the table of
// nodes. many has the packets in its lower half and the worst latency in its upper half.
part int leave(u32 slot, u32 crc, u32 node, u64 many, u64 sum) {
	u32 packets = many, worst = many >> 32, digest = node_digest(crc, node);
#pragma unroll
	for (u32 row = 0; row < 3; row++) {
		u32 bits = packet_bits(row);
		struct bucket b;
		if (!find_bucket(slot, digest, row, &b))
			return 0; // unreachable
		u64 mask = (1ull << bits) - 1, sums = bucket_mask(row) >> bits, old = read_bucket(&b, row);
		u64 count = least((old & mask) + packets, mask), total = least((old >> bits) + least(sum, sums), sums);
		u64 change = old ^ (count | total << bits);
		*b.low ^= change << b.shift;
		if (b.high)
			*b.high ^= change >> (64 - b.shift);
	}
	struct node_id id = { .group = slot & 1, .node = node };
	struct node_counts *n = bpf_map_lookup_elem(&nodes, &id);
	if (!n) {
		struct node_counts fresh = { .packets = packets, .sum = sum, .worst = worst };
		if (take_row(slot, NODES)) {
			if (!bpf_map_update_elem(&nodes, &id, &fresh, BPF_NOEXIST))
				return 0;
			give_row(slot, NODES); // another processor added it, or there is no memory
			n = bpf_map_lookup_elem(&nodes, &id);
		}
		if (!n) {
			struct counts *c = counts_of(slot);
			if (c)
				c->counters[NODES_FULL] += packets;
			return 0;
		}
	}
	n->packets += packets;
	n->sum += sum;
	if (worst > n->worst)
		n->worst = worst;
	return 0;
}

// query_latency returns the packets of a flow at a node and the sum of their latencies. It returns
// 0 if every row has an overflowed counter.
inline u32 query_latency(u32 slot, u32 digest, u64 *sum) {
	u64 n = INVALID, s = ~0ull;
	*sum = 0;
#pragma unroll
	for (u32 row = 0; row < 3; row++) {
		u32 bits = packet_bits(row);
		struct bucket b;
		if (!find_bucket(slot, digest, row, &b))
			return 0; // unreachable
		u64 all = bucket_mask(row), mask = (1ull << bits) - 1, v = read_bucket(&b, row);
		if ((v & mask) != mask)
			n = least(n, v & mask);
		if (v >> bits != all >> bits)
			s = least(s, v >> bits);
	}
	if (n == INVALID || s == ~0ull || !n)
		return 0;
	*sum = s;
	return n;
}

// enter initializes a hop with the values that the tower has of it.
part int enter(struct hop *h, u32 slot, u32 crc, u32 node) {
	if (!h)
		return 0;
	u64 sum;
	h->packets = query_latency(slot, node_digest(crc, node), &sum);
	h->sum = sum;
	h->worst = 0;
	return 0;
}

inline struct entry *entry_of(u32 set, u32 way) {
	struct entry_set *e = bpf_map_lookup_elem(&cache, &set);
	return e ? &e->entry[way & (WAYS - 1)] : 0;
}

// label_of returns the fields of a key besides the addresses.
inline u64 label_of(const struct key *k) {
	return (u64)k->sport << 48 | (u64)k->dport << 32 | (u32)k->proto << 24 | k->v6 << 8 | 1;
}

// exceeds returns whether a latency exceeds its multiple of the mean of packets: latency * packets
// * 256 > factor * sum. It compares halves, because both sides exceed 64 bits.
inline bool exceeds(u32 latency, u32 packets, u64 sum) {
	u64 x = (u64)latency * packets;
	u64 low = (u32)sum * (u64)factor, high = (sum >> 32) * factor + (low >> 32);
	return x >> 24 > high || (x >> 24 == high && (u32)(x << 8) > (u32)low);
}

// inflate adds inflated latencies of a flow at a switch to their table.
part int inflate(u32 slot, const struct key *k, u32 node, u32 latency, u32 packets) {
	struct scratch *s = scratch();
	if (!s || !k)
		return 0;
	s->place.group = slot & 1;
	s->place.node = node;
	s->place.key = *k;
	struct inflated_flow *f = bpf_map_lookup_elem(&inflated, &s->place);
	if (!f) {
		struct inflated_flow none = {};
		bool room = take_row(slot, INFLATED);
		if (room && bpf_map_update_elem(&inflated, &s->place, &none, BPF_NOEXIST))
			give_row(slot, INFLATED);
		f = room ? bpf_map_lookup_elem(&inflated, &s->place) : 0;
		if (!f) {
			struct counts *c = counts_of(slot);
			if (c)
				c->counters[INFLATED_FULL] += packets;
			return 0;
		}
	}
	__sync_fetch_and_add(&f->packets, packets);
	if (latency > f->worst)
		f->worst = latency;
	return 0;
}

// leave_hop adds a hop of a cached flow to the tower. It also adds it to the table of inflated
// latencies if the worst latency exceeds its multiple of the mean of the other ones.
part int leave_hop(u32 slot, u32 set, u32 way, u32 i) {
	struct entry *e = entry_of(set, way);
	if (!e || i >= CACHED_HOPS)
		return 0;
	struct hop *h = &e->hop[i];
	u32 packets = h->packets - e->before[i], node = e->node[i];
	if (!packets)
		return 0;
	leave(slot, e->crc, node, packets | (u64)h->worst << 32, h->sum - e->sum_before[i]);
	if (exceeds(h->worst, h->packets - 1, h->sum - h->worst)) {
		struct key k = { .src = { e->src, e->src_low }, .dst = { e->dst, e->dst_low }, .sport = e->label >> 48,
			.dport = e->label >> 32, .proto = e->label >> 24, .v6 = e->label >> 8 & 1 };
		inflate(slot, &k, node, h->worst, e->inflated[i] ? e->inflated[i] : 1);
	}
	return 0;
}

// leave_hops adds all hops of a cached flow to the tower.
part int leave_hops(u32 slot, u32 set, u32 way) {
	struct entry *e = entry_of(set, way);
	if (!e)
		return 0;
	u32 n = e->hops;
	for (u32 i = 0; i < CACHED_HOPS; i++) {
		if (i >= n || n > CACHED_HOPS)
			break;
		leave_hop(slot, set, way, i);
	}
	return 0;
}

// load puts the flow of the packet into the cache, still without a path.
part int load(u32 slot, u32 set, u32 way) {
	struct scratch *s = scratch();
	struct entry *e = entry_of(set, way);
	if (!s || !e)
		return 0;
	const struct key *k = &s->packet.key;
	u32 crc = crc_of(k);
	e->src = k->src[0];
	e->dst = k->dst[0];
	e->src_low = k->src[1];
	e->dst_low = k->dst[1];
	e->label = label_of(k);
	e->crc = crc;
	e->route = 0;
	e->hops = 0;
	e->packets = 0;
	e->changes = 0;
	e->heavy_at = heavy_packets - least(query_flow(slot, ~crc), heavy_packets);
	return 0;
}

// mark_heavy puts the flow of the packet and its latest path into the table of heavy flows. It
// returns 1, or 0 if the table is full.
part int mark_heavy(u32 slot, u32 set, u32 way) {
	struct scratch *s = scratch();
	struct entry *e = entry_of(set, way);
	if (!s || !e)
		return 0;
	bool here = e->route == s->route; // whether the packet has the latest path
	u32 n = here ? s->packet.hops : e->hops <= CACHED_HOPS ? e->hops : 0;
	s->flow.group = slot & 1;
	s->flow.key = s->packet.key;
	struct heavy_flow *h = bpf_map_lookup_elem(&heavy, &s->flow);
	if (!h) {
		s->heavy.changes = e->changes;
		s->heavy.hops = 0;
		bool room = take_row(slot, HEAVY);
		if (room && bpf_map_update_elem(&heavy, &s->flow, &s->heavy, BPF_NOEXIST))
			give_row(slot, HEAVY);
		h = room ? bpf_map_lookup_elem(&heavy, &s->flow) : 0;
		if (!h) {
			struct counts *c = counts_of(slot);
			if (c)
				c->counters[HEAVY_FULL] += s->packets;
			return 0;
		}
	}
	if (!n) { // the next packet with a path states it
		e->route = 0;
		e->hops = 0;
		return 1;
	}
	bool same = h->hops == n;
	for (u32 i = 0; i < MAX_HOPS; i++) {
		if (i >= n)
			break;
		u32 node = here ? s->hops[i].node : i < CACHED_HOPS ? e->node[i] : 0;
		if (h->path[i] != node) {
			same = false;
			h->path[i] = node;
		}
	}
	if (!same && h->hops)
		h->changes++;
	h->hops = n;
	return 1;
}

// follow sets the path of a cached flow to the path of the packet. The hops of the previous path
// move to the tower.
part int follow(u32 slot, u32 set, u32 way) {
	struct scratch *s = scratch();
	struct entry *e = entry_of(set, way);
	if (!s || !e)
		return 0;
	leave_hops(slot, set, way);
	if (e->hops && e->changes != 0xffff)
		e->changes++;
	u32 n = s->packet.hops, crc = e->crc;
	e->route = s->route;
	e->hops = n;
	for (u32 i = 0; i < CACHED_HOPS; i++) {
		if (i >= n || n > CACHED_HOPS)
			break;
		enter(&e->hop[i], slot, crc, s->hops[i].node);
		e->node[i] = s->hops[i].node;
		e->before[i] = e->hop[i].packets;
		e->sum_before[i] = e->hop[i].sum;
		e->inflated[i] = 0;
	}
	if (e->heavy_at == INVALID)
		mark_heavy(slot, set, way);
	return 0;
}

// measure adds a latency of packets to a hop. It returns whether the latency is inflated: whether
// it exceeds its multiple of the mean of earlier packets.
inline bool measure(struct hop *h, u32 latency, u32 packets) {
	bool inflated = exceeds(latency, h->packets, h->sum);
	h->packets += packets;
	h->sum += (u64)latency * packets;
	if (latency > h->worst)
		h->worst = latency;
	return inflated;
}

inline u64 set_of(u32 slot, u64 hash) { return slot * SETS + (hash >> 40) % SETS; }

inline u64 tag_of(u64 hash) { return hash >> 24 & 0xff; }

// tagged returns the first way that has the tag of a hash, or WAYS.
inline u32 tagged(u64 tags, u64 hash) {
	const u64 ones = 0x0101010101010101;
	u64 x = tags ^ tag_of(hash) * ones, zeros = (x - ones) & ~x & ones << 7;
	// The multiplication moves the number of the lowest zero byte into the highest byte.
	return zeros ? ((zeros & -zeros) >> 7) * 0x0001020304050607 >> 56 : WAYS;
}

// path_step adds a switch to the hash of a flow.
inline u64 path_step(u64 hash, u32 node) { return (hash ^ node) * 0x9e3779b97f4a7c15; }

inline bool is(const struct entry *e, const struct key *k, u64 label) {
	return e->label == label && e->src == k->src[0] && e->dst == k->dst[0] &&
	       (!k->v6 || (e->src_low == k->src[1] && e->dst_low == k->dst[1]));
}

// find returns the way of the packet's flow in its set, and hashes the flow and its path. A new
// flow replaces the flow with the fewest packets.
part u32 find(u32 slot) {
	struct scratch *s = scratch();
	if (!s)
		return 0;
	const struct key *k = &s->packet.key;
	u32 n = s->packet.hops;
	u64 hash = step(step(0, k->src[0]), k->dst[0]);
	if (k->v6)
		hash = step(step(hash, k->src[1]), k->dst[1]);
	hash = step(hash, (u64)k->sport << 32 | (u32)k->dport << 16 | k->proto);
	u64 route = hash;
	for (u32 i = 0; i < MAX_HOPS; i++) {
		if (i >= n)
			break;
		route = path_step(route, s->hops[i].node);
	}
	s->route = route;
	u64 label = label_of(k);
	u32 at = set_of(slot, hash), way = WAYS;
	struct set *t = bpf_map_lookup_elem(&sets, &at);
	struct entry_set *e = bpf_map_lookup_elem(&cache, &at);
	if (!t || !e)
		return 0;
#pragma unroll
	for (u32 i = 0; i < WAYS; i++) {
		if (way == WAYS && (t->tags >> i * 8 & 0xff) == tag_of(hash) && is(&e->entry[i], k, label))
			way = i;
	}
	if (way < WAYS) {
		t->seen[way & (WAYS - 1)] += s->packets;
		return at * WAYS + way;
	}
	u32 fewest = t->seen[0];
	way = 0;
#pragma unroll
	for (u32 i = 1; i < WAYS; i++) {
		u32 seen = t->seen[i];
		if (seen < fewest) {
			fewest = seen;
			way = i;
		}
	}
	struct entry *old = entry_of(at, way);
	if (old && old->label) {
		if (old->packets)
			add_flow(slot, ~old->crc, old->packets);
		leave_hops(slot, at, way);
	}
	load(slot, at, way);
	u32 shift = way * 8;
	t->tags ^= ((t->tags >> shift & 0xff) ^ tag_of(hash)) << shift;
	t->seen[way & (WAYS - 1)] = s->packets;
	return at * WAYS + way;
}

// long_hop measures a hop of a path that is not cached.
part int long_hop(u32 slot, u32 crc, u32 node, u32 latency) {
	struct scratch *s = scratch();
	struct hop h = {};
	enter(&h, slot, crc, node);
	u32 packets = s ? s->packets : 1;
	if (s && measure(&h, latency, packets))
		inflate(slot, &s->packet.key, node, latency, packets);
	return leave(slot, crc, node, packets | (u64)latency << 32, (u64)latency * packets);
}

// add measures the packet as one of its flow, with the latencies of its hops. A packet without
// hops, or whose header states that hops are missing, does not change the path of its flow.
part int add(u32 slot) {
	u32 at = find(slot);
	struct scratch *s = scratch();
	struct entry *e = entry_of(at / WAYS, at);
	struct counts *c = counts_of(slot);
	if (!s || !e || !c)
		return 0;
	u32 n = s->packet.hops, packets = s->packets;
	if (e->route != s->route && n && !s->packet.mtu && !(s->packet.flags & 0x04))
		follow(slot, at / WAYS, at);
	e->packets += packets;
	if (e->packets >= e->heavy_at && mark_heavy(slot, at / WAYS, at))
		e->heavy_at = INVALID;
	c->counters[HOPS] += n * packets;
	if (n > CACHED_HOPS || e->route != s->route) {
		u32 crc = e->crc;
		for (u32 i = 0; i < MAX_HOPS; i++) {
			if (i >= n)
				break;
			if (s->hops[i].latency == INVALID)
				c->counters[NO_LATENCY] += packets;
			else
				long_hop(slot, crc, s->hops[i].node, s->hops[i].latency);
		}
		return 0;
	}
	for (u32 i = 0; i < CACHED_HOPS; i++) {
		if (i >= n)
			break;
		u32 latency = s->hops[i].latency;
		if (latency == INVALID)
			c->counters[NO_LATENCY] += packets;
		else if (measure(&e->hop[i], latency, packets))
			e->inflated[i] += packets;
	}
	return 0;
}

// fault counts a problem under the sender of the packet.
part int fault(u32 slot, u32 problem) {
	struct scratch *s = scratch();
	struct counts *c = counts_of(slot);
	if (!s || !c || !s->packet.addressed)
		return 0;
	struct fault_id id = { .v6 = s->packet.key.v6, .group = slot & 1, .problem = problem };
	id.address[0] = s->packet.key.src[0];
	id.address[1] = s->packet.key.src[1];
	u64 packets = s->packets, *n = bpf_map_lookup_elem(&faults, &id);
	if (!n) {
		bool room = take_row(slot, FAULTS);
		if (room && !bpf_map_update_elem(&faults, &id, &packets, BPF_NOEXIST))
			return 0;
		if (room)
			give_row(slot, FAULTS);
		n = room ? bpf_map_lookup_elem(&faults, &id) : 0;
		if (!n) {
			c->counters[FAULTS_FULL] += packets;
			return 0;
		}
	}
	__sync_fetch_and_add(n, packets);
	return 0;
}

// Checksums are sums of 16-bit words in network order, modulo 2^16-1.

// sum_of returns the sum of the bytes of INT, whose length is a multiple of 4.
part u64 sum_of(u32 at, u32 size) {
	struct scratch *s = scratch();
	u64 sum = 0;
	if (!s)
		return 0;
	for (u32 i = 0; i < BUFFER / 8; i++) {
		if (size < 8)
			break;
		u64 v = raw64(s, at);
		sum += (v >> 32) + (u32)v;
		at += 8;
		size -= 8;
	}
	if (size)
		sum += raw32(s, at);
	return sum;
}

// update adds n to the checksum at an offset. never has the meaning that it has in updated.
inline void update(struct scratch *s, u32 at, u64 n, u16 never) {
	write_raw16(s, at, updated(raw16(s, at), n, never));
}

// replace writes a word in network order. It returns the number that this adds to a checksum.
inline u64 replace(struct scratch *s, u32 at, u16 word) {
	u16 old = raw16(s, at);
	write_raw16(s, at, word);
	return (u64)old + (u16)~word;
}

inline void restore_dscp(struct scratch *s, const struct packet *p) {
	if (p->shim > p->at) // a probe marker is in front of INT
		return;
	u32 ip = p->ip;
	u8 value = read8(s, p->shim + 3) & 0xfc, second = read8(s, ip + 1);
	if (p->key.v6) {
		u8 class = value | (second >> 4 & 3);
		write8(s, ip, (read8(s, ip) & 0xf0) | class >> 4);
		write8(s, ip + 1, class << 4 | (second & 0x0f));
		return;
	}
	update(s, ip + 10, replace(s, ip, read8(s, ip) | (u16)(value | (second & 3)) << 8), 0xffff);
}

// restore_udp restores the UDP header when size bytes behind it are removed. removed is the number
// that the removal and other changes add to the checksum.
inline void restore_udp(struct scratch *s, const struct packet *p, u64 removed, u32 size) {
	u32 l4 = p->l4;
	removed += bpf_htons(size) + replace(s, l4 + 4, bpf_htons(read16(s, l4 + 4) - size));
	if (p->carrier == CARRIER_UDP)
		restore_dscp(s, p);
	else
		removed += replace(s, l4 + 2, bpf_htons(p->key.dport));
	if (raw16(s, l4 + 6)) // zero: the packet has no checksum
		update(s, l4 + 6, removed, 0);
}

// critical returns whether the packet has a critical Geneve option besides INT.
inline bool critical(const struct scratch *s, const struct packet *p, u32 end) {
	u32 at = p->l4 + 16;
	for (u32 i = 0; i < GENEVE_OPTIONS / 4 && at + 4 <= end; i++) {
		if (at != p->shim && read8(s, at + 2) & 0x80)
			return true;
		at += 4 + (read8(s, at + 3) & 0x1f) * 4;
	}
	return false;
}

// restore_tunnel restores the headers of GRE, VXLAN or Geneve, and the UDP header.
part int restore_tunnel(u64 removed) {
	struct scratch *s = scratch();
	if (!s)
		return 0;
	struct packet *p = &s->packet;
	u32 at = p->l4 + 8, shim = p->shim, size = p->size;
	switch (p->carrier) {
	case CARRIER_GRE:
		removed += replace(s, p->l4 + 2, raw16(s, shim + 2));
		if (read8(s, p->l4) & 0x80)
			update(s, p->l4 + 4, removed, 0xffff);
		return 0;
	case CARRIER_GENEVE: {
		u8 options = read8(s, at), flags = read8(s, at + 1);
		u32 end = at + 8 + (options & 0x3f) * 4, length = s->length;
		if (read8(s, shim + 2) & 0x80 && !critical(s, p, end < length ? end : length))
			flags &= ~0x40;
		removed += replace(s, at, (u8)(options - size / 4) | (u16)flags << 8);
		break;
	}
	default: {
		u8 flags = read8(s, at), next = read8(s, shim + 3);
		if (p->carrier == CARRIER_VXLAN_ENCAP) {
			flags &= ~VXLAN_NEXT;
			next = 0;
		}
		removed += replace(s, at, flags | (u16)read8(s, at + 1) << 8);
		removed += replace(s, at + 2, read8(s, at + 2) | (u16)next << 8);
	}
	}
	restore_udp(s, p, removed, size);
	return 0;
}

// unwrap removes the headers that the INT source put in front of a packet. It returns 0 if the
// frame cannot be changed.
part int unwrap(struct xdp_md *xdp) {
	struct scratch *s = scratch();
	if (!s)
		return 0;
	struct packet *p = &s->packet;
	u32 behind = p->at + p->size;
	u16 type = raw16(s, p->shim + 2);
	if (type == bpf_htons(ETH_BRIDGED))
		return !bpf_xdp_adjust_head(xdp, behind);
	write_raw16(s, p->ip - 2, type);
	if (bpf_xdp_adjust_head(xdp, behind - p->ip))
		return 0;
	store_front(xdp, s, p->ip);
	return 1;
}

// restore restores the headers that the packet's sender wrote. It returns the offset of the bytes
// to remove in the lower half, and their number in the upper half.
part u64 restore(void) {
	struct scratch *s = scratch();
	if (!s)
		return 0;
	struct packet *p = &s->packet;
	u32 at = p->at, size = p->size, ip = p->ip;
	if (p->carrier == CARRIER_UDP_ENCAP) {
		at = p->l4;
		size = p->at + p->size - at;
		if (p->key.v6)
			write8(s, ip + 6, p->next);
		else
			update(s, ip + 10, replace(s, ip + 8, read8(s, ip + 8) | (u16)p->next << 8), 0xffff);
	} else {
		u64 removed = sum_of(at, size);
		if (p->carrier == CARRIER_TCP) {
			restore_dscp(s, p);
			update(s, p->l4 + 16, removed + bpf_htons(size), 0xffff);
		} else if (p->carrier < CARRIER_GRE) {
			restore_udp(s, p, removed, size);
		} else {
			restore_tunnel(removed);
		}
	}
	if (p->key.v6) {
		write_raw16(s, ip + 4, bpf_htons(read16(s, ip + 4) - size));
	} else {
		write_raw16(s, ip + 2, bpf_htons(read16(s, ip + 2) - size));
		update(s, ip + 10, bpf_htons(size), 0xffff);
	}
	return at | (u64)size << 32;
}

// flags counts the flags in the INT header of packets, if the header was read.
inline void flags(struct counts *c, const struct packet *p, u32 problem, u32 packets) {
	if (!p->size || p->kind != MD || problem == UNKNOWN_VERSION || problem == TRUNCATED)
		return;
	if (p->flags & 0x08)
		c->counters[COPIES] += packets;
	if (p->mtu)
		c->counters[MTU_EXCEEDED] += packets;
	if (p->flags & 0x04 || !p->remaining)
		c->counters[HOP_LIMIT] += packets;
	if (p->bitmap & (p->version == 1 ? 0x00fe : 0x007e))
		c->counters[UNKNOWN_INSTRUCTION] += packets;
}

// quick is the result of receive_quickly.
struct quick {
	u32 at, n, size; // offset of INT; number of hops; bytes of INT, or 0 without INT
	u64 sum, head, ports;
	u8 proto;
};

enum { QUICK_IP = 14, QUICK_L4 = QUICK_IP + 20 };

// receive_quickly measures the most frequent packets in less time than receive: Ethernet without
// tags, IPv4 without options, and TCP or UDP. They have no INT, or INT-MD of version 2 that is
// marked by a DSCP, has neither flags nor domain-specific instructions, and a node id and a latency
// for each hop. Their flow and its path are in the cache. For any other packet, it returns false
// and changes nothing.
inline bool receive_quickly(u8 *data, u8 *end, u32 slot, struct counts *c, u32 packets, u32 frame, struct quick *q) {
	enum { IP = QUICK_IP, L4 = QUICK_L4, HEADERS = 16, HOP = 8 };
	if (data + L4 + 8 + HEADERS > end)
		return false;
	// Adjacent fields are read as one word.
	u64 head = bpf_be64_to_cpu(*(u64 *)(data + IP)), ports = bpf_be64_to_cpu(*(u64 *)(data + L4));
	u32 length = IP + (head >> 32 & 0xffff);
	if (*(u16 *)(data + IP - 2) != bpf_htons(ETH_IPV4) || head >> 56 != 0x45 || head & 0x3fff || length < L4)
		return false;
	bool marked = mark_dscp_mask && (head >> 50 & mark_dscp_mask) == mark_dscp;
	if (!marked && probe)
		return false;
	u32 at = L4 + 8, stop = L4 + (ports >> 16 & 0xffff);
	u16 dport = ports >> 32;
	u8 proto = data[IP + 9];
	if (proto == TCP) {
		at = L4 + 20;
		stop = length;
		if (!before_options) {
			u32 options = (data[L4 + 12] >> 4) * 4;
			at = options > 20 ? L4 + options : at;
		}
	} else if (proto != UDP || dport == udp_port || dport == vxlan_port || dport == geneve_port) {
		return false;
	}
	u8 *b = data + at;
	u32 n = 0, size = 0;
	u64 sum = 0;
	if (marked) {
		if (b + HEADERS > end || length > frame || packets > 1)
			return false;
		u64 raw = *(u64 *)b, raw2 = *(u64 *)(b + 8), first = bpf_be64_to_cpu(raw), second = bpf_be64_to_cpu(raw2);
		u32 words = first >> 48 & 0xff;
		n = (words - 3) / 2;
		// INT-MD, version 2 without flags, hops of two words, and a remaining hop count; node ids
		// and latencies, no domain-specific instructions.
		if ((first & 0xf0000000fe001f00) != 0x1000000020000200 || !(first & 0xff) || !(words & 1) ||
		    n - 1 >= CACHED_HOPS || (second & 0xffff0000ffff0000) != 0xa000000000000000 || (probe && raw == probe))
			return false;
		size = HEADERS + n * HOP;
		if (at + size > stop || stop > length)
			return false;
		sum = (raw >> 32) + (u32)raw + (raw2 >> 32) + (u32)raw2;
	}
	u64 addresses = *(u64 *)(data + IP + 12), src = (u32)addresses, dst = addresses >> 32;
	u64 hash = step(step(step(0, src), dst), (ports >> 48) << 32 | (u32)dport << 16 | proto), route = hash;
#pragma unroll
	for (u32 i = 0; i < CACHED_HOPS; i++) {
		u64 *h = (u64 *)(b + HEADERS + i * HOP);
		if (i >= n)
			break;
		if ((void *)(h + 1) > (void *)end)
			return false; // unreachable
		u64 raw = *h;
		sum += (raw >> 32) + (u32)raw;
		raw = bpf_be64_to_cpu(raw);
		if ((u32)raw == INVALID)
			return false;
		route = path_step(route, raw >> 32);
	}
	u32 set = set_of(slot, hash);
	struct set *t = bpf_map_lookup_elem(&sets, &set);
	if (!t)
		return false; // unreachable
	u32 way = tagged(t->tags, hash);
	if (way == WAYS)
		return false;
	struct entry *e = entry_of(set, way);
	u64 label = ports >> 32 << 32 | (u32)proto << 24 | 1;
	if (!e || (n && e->route != route) || e->label != label || e->src != src || e->dst != dst || e->packets + packets >= e->heavy_at)
		return false;
	t->seen[way & (WAYS - 1)] += packets;
	e->packets += packets;
#pragma unroll
	for (u32 i = 0; i < CACHED_HOPS; i++) {
		u32 *latency = (u32 *)(b + HEADERS + i * HOP + 4);
		if (i >= n)
			break;
		if ((void *)(latency + 1) > (void *)end)
			return false; // unreachable
		e->inflated[i] += measure(&e->hop[i], bpf_ntohl(*latency), 1);
	}
	c->counters[PACKETS] += packets;
	if (!marked)
		c->problems[ABSENT] += packets;
	*q = (struct quick){ .at = at, .n = n, .size = size, .sum = sum, .head = head, .ports = ports, .proto = proto };
	return true;
}

// count_quickly counts a packet whose INT was removed.
inline void count_quickly(struct counts *c, const struct quick *q) {
	c->problems[NONE]++;
	c->counters[WITH_INT]++;
	c->counters[INT_BYTES] += q->size;
	c->counters[HOPS] += q->n;
}

// strip_quickly removes INT from a packet at XDP.
inline void strip_quickly(struct xdp_md *xdp, struct counts *c, const struct quick *q) {
	enum { IP = QUICK_IP, L4 = QUICK_L4 };
	u8 *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	u32 at = q->at, size = q->size;
	u64 head = q->head, ports = q->ports, sum = q->sum;
	if (at > L4 + 60 || size > 64)
		return; // unreachable
	u8 *b = data + at, *to = data + size;
	if (b + 4 > end || data + L4 + 24 > end)
		return; // unreachable
	u8 dscp_of = b[3];
	// Words are moved from the last to the first, so that each is read before it is overwritten.
	for (u32 i = 0; i < 7; i++) {
		u32 from = at - 8 * (i + 1);
		if (from <= L4)
			break;
		u64 *word = (u64 *)(data + from), *moved = (u64 *)(to + from);
		if ((void *)(word + 1) > (void *)end || (void *)(moved + 1) > (void *)end)
			return; // unreachable
		*moved = *word;
	}
	if (to + L4 + 8 > end)
		return; // unreachable
#pragma unroll
	for (u32 from = L4; from < 64; from -= 8)
		*(u64 *)(to + from) = *(u64 *)(data + from);
	*(u64 *)to = *(u64 *)data;
	// The bytes that are removed and changed are subtracted from the checksums, as in strip.
	u16 less = bpf_htons(size), service = 0x45 | (head >> 48 & 0xff) << 8;
	u16 restored = 0x45 | ((dscp_of & 0xfc) | (head >> 48 & 3)) << 8;
	*(u16 *)(to + IP) = restored;
	*(u16 *)(to + IP + 2) = bpf_htons((u16)(head >> 32) - size);
	u16 *checksum = (u16 *)(to + IP + 10);
	*checksum = updated(*checksum, service + (u16)~restored + less, 0xffff);
	sum += less;
	if (q->proto == TCP) {
		checksum = (u16 *)(to + L4 + 16);
		if ((void *)(checksum + 1) > (void *)end)
			return; // unreachable
		*checksum = updated(*checksum, sum, 0xffff);
	} else {
		*(u16 *)(to + L4 + 4) = bpf_htons((u16)(ports >> 16) - size);
		checksum = (u16 *)(to + L4 + 6);
		if (*checksum) // zero: the packet has no checksum
			*checksum = updated(*checksum, sum + less, 0);
	}
	if (bpf_xdp_adjust_head(xdp, size))
		return; // unreachable
	count_quickly(c, q);
}

// measured says what remains to be done with a measured packet.
struct measured {
	u32 at, size; // bytes to remove; a size of 0 removes none
	bool wrapped; // whether the bytes are headers that the INT source put in front
};

// receive_whole measures a packet whose frame, or the begin of it, was read. It returns false if
// more of the frame has to be read. divided states that each packet of a super-packet may have INT.
inline bool receive_whole(u32 slot, struct counts *c, struct scratch *s, bool divided, struct measured *m) {
	u32 problem = decode(), packets = s->packets;
	const struct packet *p = &s->packet;
	m->size = 0;
	if (problem == MORE) {
		if (s->have < s->length && s->have < BUFFER)
			return false;
		problem = MALFORMED; // unreachable
	}
	c->problems[problem & (PROBLEMS - 1)] += packets;
	if (problem > NOT_IP)
		fault(slot, problem);
	if (problem == NOT_IP || problem == MALFORMED)
		return true;
	c->counters[PACKETS] += packets;
	if (problem == UNKNOWN_VERSION)
		c->versions[p->version & 15] += packets;
	// Geneve options are equal in all packets that the kernel merges.
	bool unread = divided && p->size && p->carrier != CARRIER_GENEVE;
	if (unread)
		s->packet.hops = 0;
	m->wrapped = p->carrier == CARRIER_GRE_ENCAP;
	if (m->wrapped)
		s->packet.key = s->inner;
	if (!p->no_flow) {
		flags(c, p, problem, packets);
		if (p->hops) {
			read_hops();
			if (p->bitmap & 0x1000)
				measure_queues(slot);
		}
		add(slot);
	}
	if (unread) {
		c->counters[UNREAD] += packets;
	} else if (p->size) {
		u64 range = m->wrapped ? 1ull << 32 : restore();
		m->at = range;
		m->size = range >> 32;
	}
	return true;
}

// count_removed counts packets whose INT was removed, or could not be removed.
inline void count_removed(struct counts *c, const struct scratch *s, bool removed) {
	c->counters[removed ? WITH_INT : UNREAD] += s->packets;
	if (removed)
		c->counters[INT_BYTES] += (u64)s->packet.size * s->packets;
}

inline u32 slot_now(const struct control_block *state) {
	return bpf_get_smp_processor_id() * GROUPS + (*(volatile u32 *)&state->active & 1);
}

// range returns a number of bytes to load. The mask shows the verifier its range.
inline u32 range(u32 size) {
	asm volatile("" : "+r"(size));
	return ((size - 1) & (BUFFER - 1)) + 1;
}

SEC("xdp.frags")
int receive_first(struct xdp_md *xdp) {
	struct control_block *state_now = state();
	if (!state_now)
		return XDP_PASS; // unreachable
	u32 slot = slot_now(state_now);
	struct counts *c = counts_of(slot);
	struct scratch *s = scratch();
	if (!c || !s)
		return XDP_PASS; // unreachable
	u8 *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct quick q;
	if (receive_quickly(data, end, slot, c, 1, end - data, &q)) {
		if (q.size)
			strip_quickly(xdp, c, &q);
		return XDP_PASS;
	}
	s->length = bpf_xdp_get_buff_len(xdp);
	s->have = s->length < FRONT ? s->length : FRONT;
	s->packets = 1;
	s->tags = 2;
	if (!load_front(xdp, s))
		return XDP_PASS; // unreachable: a frame has 14 bytes
	struct measured m;
	if (!receive_whole(slot, c, s, false, &m)) {
		s->have = s->length < BUFFER ? s->length : BUFFER;
		if (bpf_xdp_load_bytes(xdp, 0, s->bytes, range(s->have)))
			return XDP_PASS; // unreachable
		receive_whole(slot, c, s, false, &m);
	}
	if (!m.size)
		return XDP_PASS;
	bool removed = m.wrapped ? unwrap(xdp) : !bpf_xdp_adjust_head(xdp, m.size);
	if (removed && !m.wrapped)
		store_front(xdp, s, m.at);
	count_removed(c, s, removed);
	return XDP_PASS;
}

SEC("tc")
int receive(struct __sk_buff *skb) {
	struct control_block *state_now = state();
	if (!state_now)
		return NEXT; // unreachable
	u32 slot = slot_now(state_now), packets = segments(skb);
	struct counts *c = counts_of(slot);
	struct scratch *s = scratch();
	if (!c || !s)
		return NEXT; // unreachable
	u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct quick q;
	struct measured m;
	if (receive_quickly(data, end, slot, c, packets, skb->len, &q)) {
		struct packet *p = &s->packet;
		u32 have = q.at + q.size;
		if (!q.size || have > FRONT || bpf_skb_load_bytes(skb, 0, s->bytes, range(have)))
			return NEXT;
		__builtin_memset(p, 0, sizeof(*p));
		p->ip = QUICK_IP;
		p->l4 = QUICK_L4;
		p->at = p->shim = q.at;
		p->size = q.size;
		p->carrier = q.proto == TCP ? CARRIER_TCP : CARRIER_UDP;
		restore();
		if (shorten(skb, s->bytes + QUICK_IP, q.at - QUICK_IP, q.size))
			count_quickly(c, &q);
		else
			c->counters[UNREAD]++;
		return NEXT;
	}
	s->length = skb->len;
	s->have = s->length < FRONT ? s->length : FRONT;
	s->packets = packets;
	s->tags = skb->vlan_present ? 1 : 2;
	if (bpf_skb_load_bytes(skb, 0, s->bytes, range(s->have)))
		return NEXT; // unreachable: a packet has 14 bytes
	bool divided = skb->gso_size;
	if (!receive_whole(slot, c, s, divided, &m)) {
		s->have = s->length < BUFFER ? s->length : BUFFER;
		if (bpf_skb_load_bytes(skb, 0, s->bytes, range(s->have)))
			return NEXT; // unreachable
		receive_whole(slot, c, s, divided, &m);
	}
	if (m.size) {
		u32 ip = s->packet.ip & 31;
		count_removed(c, s, !m.wrapped && shorten(skb, s->bytes + ip, m.at - ip, m.size));
	}
	return NEXT;
}

char _license[] SEC("license") = "Apache-2.0";

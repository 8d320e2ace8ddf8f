// SPDX-License-Identifier: Apache-2.0

// UnivMon's host role in the kernel. It has the same cells and counts as package hostagent/univmon,
// which equal those of p4/programs/include/univmon.p4. Packets pass unchanged.
//
// There are two groups of cells for each processor. The agent switches between them, and adds up
// and clears the group that no processor uses any more.

#define CRC_BYTES 4
#include "../../../kernel/bpf/packet.h"

enum {
	FRONT = 256, // bytes of a packet in which headers are found
	SWITCH_FRONT = 1024, // the same for SWITCH_INNER; switches stop before
	GROUPS = 2,
	MAX_SKETCHES = 8,
	FLOWS = 2048, // flows that a processor remembers, a power of two
	NEXT = -1, // TCX: the next program decides
	WIDE = 8, // levels with all columns and slots; later levels have a quarter of them
};

// Fields of keys, as in package flow.
enum {
	SRC = 1,
	DST = 2,
	PROTO = 4,
	SRC_PORT = 8,
	DST_PORT = 16,
};

// Counters, as in package wire.
enum {
	SENT,
	RECEIVED,
	NOT_IP,
	TRUNCATED,
	BAD_VERSION,
	BAD_LENGTH,
	BAD_CHECKSUM,
	TOO_DEEP,
	COUNTERS,
	MORE, // not a counter: the next header decides
};

// Encapsulations, as in package wire.
enum {
	SWITCH,
	OUTER,
	INNER,
	SWITCH_INNER,
};

// The headers that a switch parses, as in package packet: 250 bytes at most, and 8 * 48 bytes more
// behind the first IP header.
enum {
	SWITCH_TAGS = 4,
	SWITCH_LABELS = 6,
	SWITCH_EXTENSIONS = 3,
	SWITCH_LENGTH = 48, // bytes of an extension header, at most
	SWITCH_CARRIED = 8,
	UNBOUNDED = 255,
};

// Kinds of headers besides EtherTypes.
enum {
	EXTENSION = 0x10000, // an extension header of IPv6
	CARRIED = 0x10001,   // the payload of an IP packet
	CARRIED_LATER = 0x10002, // the payload of a fragment after the first
};

// Ports and protocols, as in package packet.
enum {
	VXLAN_PORT = 4789,
	PPP_IPV4 = 0x0021,
	PPP_IPV6 = 0x0057,
};

// Odd constants of hashes, as in package rowhash.
#define ODD_LEVEL 0x2545f491
#define ODD_ROW0 0x9e3779b1
#define ODD_ROW1 0x85ebca6b
#define ODD_ROW2 0xc2b2ae35
#define ODD_ROW3 0x27d4eb2f
#define ODD_ROW4 0x165667b1
#define ODD_WAY0 0x7feb352d
#define ODD_WAY1 0x846ca68b
#define ODD_WAY2 0xd6e8feb9
#define ODD_WAY3 0xb5297a4d

// divisor is a number n with 2^32 / n, rounded down, by which modulo divides.
struct divisor {
	u64 inverse;
	u32 n;
	u32 unused;
};

// shape is the shape of a sketch. Cells are counted from the begin of a lane.
struct shape {
	struct divisor cells, slots; // twice the number of columns; slots of a way
	u32 counters, heavy, packets; // the first cell of each
	u32 levels, rows, columns, ways, words;
	u32 deep_columns, deep_slots; // columns and slots of a level after the wide ones
	u32 fields;
};

volatile const u8 leading_ones[256]; // leading ones of each byte
volatile const u32 encapsulation;
volatile const u32 sketches;
volatile const struct shape shapes[MAX_SKETCHES];
volatile const u32 lane_cells; // cells of a processor in a group

struct counts {
	u64 counters[16];
};

struct control_block {
	u32 active; // the group that counts
	u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct control_block);
} control SEC(".maps");

// lanes and cells hold values by processor and group.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counts);
} lanes SEC(".maps");

// The cells of a lane are one map value, whose size the agent sets.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} cells SEC(".maps");

// place has the hash and the cells of a flow in a sketch.
struct place {
	u32 h, level; // hash of the key; cell with the packets of the level
	u32 rows[5];  // twice the cell of each row, plus 1 for the sign -
	u32 slots[4]; // the first cell of each slot
	u32 best;     // slot that had the key, or had room for it, the last time
};

// flow is a flow and its places, which depend on the flow alone. Most packets find them here and
// need no hash.
struct flow {
	struct key key;
	struct place places[MAX_SKETCHES]; // the map has one for each sketch
};

const struct flow *named __attribute__((unused)); // the agent finds the type by this variable

// The most recent flows, by processor. The agent sets the size of the values in cache lines, to
// which it aligns them when it maps them.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FLOWS);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct flow));
} flows SEC(".maps");

// tag tells, without access to a remembered flow, whether it may be the packet's flow. flow is a
// part of the remembered flow's hash; other is the same part of the hash of the last packet of
// another flow with the same place.
struct tag {
	u16 flow, other;
};

struct tags {
	struct tag tag[FLOWS];
};

// tags holds the tags, by processor.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct tags);
} tags SEC(".maps");

struct scratch {
	u8 front[SWITCH_FRONT + 16];
	struct key key;
	u32 found; // whether key is set by a header; the last such header counts
	u32 packets;
	u32 at, kind, end; // offset and kind of the next header; bytes in which headers are followed
	u8 tags, labels, extensions; // numbers that may still follow
	u8 carried;                  // headers of all kinds that may follow in tunnels
	struct flow flow;            // the flow of the packet if it is not remembered
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

inline bool for_switches(void) { return encapsulation == SWITCH || encapsulation == SWITCH_INNER; }
inline bool for_inner(void) { return encapsulation == INNER || encapsulation == SWITCH_INNER; }

// The comparisons show the verifier that offsets into front are below its size.
inline u8 read8(const struct scratch *s, u32 at) { return at < SWITCH_FRONT ? s->front[at] : 0; }
inline u16 raw16(const struct scratch *s, u32 at) { return at < SWITCH_FRONT ? *(u16 *)(s->front + at) : 0; }
inline u32 raw32(const struct scratch *s, u32 at) { return at < SWITCH_FRONT ? *(u32 *)(s->front + at) : 0; }
inline u64 raw64(const struct scratch *s, u32 at) { return at < SWITCH_FRONT ? *(u64 *)(s->front + at) : 0; }
inline u16 read16(const struct scratch *s, u32 at) { return bpf_ntohs(raw16(s, at)); }

// is_valid returns whether an IPv4 header has a valid checksum: whether its 16-bit words add up to
// all ones. The given sum adds up pairs of these words.
inline bool is_valid(u64 sum) {
	sum = (sum >> 32) + (u32)sum;
	sum = (sum >> 32) + (u32)sum;
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return sum == 0xffff;
}

inline bool valid_checksum(const struct scratch *s, u32 ip, u32 header) {
	u64 sum = 0;
	for (u32 i = 0; i < 60; i += 4) {
		if (i >= header)
			break;
		sum += raw32(s, ip + i);
	}
	return is_valid(sum);
}

inline bool is_extension(u8 protocol) {
	switch (protocol) {
	case HOP_BY_HOP:
	case ROUTING:
	case FRAGMENT:
	case AH:
	case DESTINATIONS:
	case MOBILITY:
	case HIP:
	case SHIM6:
		return true;
	}
	return false;
}

// is_tunnel reports whether an IP packet with this key may carry another packet.
inline bool is_tunnel(const struct scratch *s) {
	switch (s->key.proto) {
	case IPV4_IN_IP:
	case IPV6_IN_IP:
	case GRE:
	case MPLS_IN_IP:
		return true;
	case UDP:
		return s->key.dport == VXLAN_PORT;
	}
	return false;
}

// find_key sets the key of a packet without encapsulations. It returns MORE if there are
// encapsulations, or the counter of packets without a key. It is faster than find_behind.
inline int find_key(struct __sk_buff *skb, struct scratch *s) {
	struct headers h;
	switch (parse(skb, &h)) {
	case PARSE_NOT_IP:
		return MORE;
	case PARSE_TRUNCATED:
		return TRUNCATED;
	case PARSE_VERSION:
		return BAD_VERSION;
	case PARSE_LENGTH:
		return BAD_LENGTH;
	}
	s->key = h.key;
	if (h.key.v6 && !h.later && is_extension(h.key.proto))
		return MORE;
	if (encapsulation == SWITCH_INNER && !h.later && is_tunnel(s))
		return MORE;
	if (h.key.v6)
		return COUNTERS;
	if (h.l4 > 20) // find_behind adds up options
		return MORE;
	const u32 *w = (void *)(long)skb->data + (h.ip & 31);
	if ((void *)(w + 5) > (void *)(long)skb->data_end)
		return TRUNCATED; // unreachable
	return is_valid((u64)w[0] + w[1] + w[2] + w[3] + w[4]) ? COUNTERS : BAD_CHECKSUM;
}

// take subtracts n headers from the number that may follow in tunnels, if this header is in a
// tunnel.
inline bool take(struct scratch *s, u32 n) {
	if (!s->found)
		return true;
	if (s->carried < n)
		return false;
	s->carried -= n;
	return true;
}

// next skips n bytes, which end with the EtherType of the next header.
inline int next(struct scratch *s, u32 at, u32 n) {
	if (s->end - at < n)
		return TRUNCATED;
	s->kind = read16(s, at + n - 2);
	s->at = at + n;
	return MORE;
}

inline int follow_label(struct scratch *s, u32 at) {
	u32 n = s->end - at;
	if (n < 4)
		return TRUNCATED;
	s->at = at + 4;
	if (!(read8(s, at + 2) & 1))
		return MORE;
	if (n < 5)
		return TRUNCATED;
	u32 version = read8(s, at + 4) >> 4;
	s->kind = version == 4 ? ETH_IPV4 : version == 6 ? ETH_IPV6 : 0;
	return MORE;
}

inline int follow_pppoe(struct scratch *s, u32 at) {
	if (s->end - at < 8)
		return TRUNCATED;
	u32 protocol = read16(s, at) == 0x1100 ? read16(s, at + 6) : 0; // a session
	s->at = at + 8;
	s->kind = protocol == PPP_IPV4 ? ETH_IPV4 : protocol == PPP_IPV6 ? ETH_IPV6 : 0;
	return MORE;
}

inline int follow_ipv4(struct scratch *s, u32 at) {
	u32 n = s->end - at;
	if (n < 20)
		return TRUNCATED;
	if (read8(s, at) >> 4 != 4)
		return BAD_VERSION;
	u32 header = (read8(s, at) & 15) * 4;
	if (header < 20)
		return BAD_LENGTH;
	if (!take(s, 1 + (header - 20) / 4)) // each word of options counts, too
		return TOO_DEEP;
	if (n < header)
		return TRUNCATED;
	u8 protocol = read8(s, at + 9);
	s->kind = read16(s, at + 6) & 0x1fff ? CARRIED_LATER : CARRIED;
	if (s->kind == CARRIED && (protocol == TCP || protocol == UDP) && n < header + 4)
		return TRUNCATED;
	if (!valid_checksum(s, at, header))
		return BAD_CHECKSUM;
	s->key = (struct key){ .src[0] = raw32(s, at + 12), .dst[0] = raw32(s, at + 16), .proto = protocol };
	s->at = at + header;
	return MORE;
}

inline int follow_ipv6(struct scratch *s, u32 at) {
	if (s->end - at < 40)
		return TRUNCATED;
	if (read8(s, at) >> 4 != 6)
		return BAD_VERSION;
	if (!take(s, 1))
		return TOO_DEEP;
	s->key = (struct key){ .src = { raw64(s, at + 8), raw64(s, at + 16) }, .proto = read8(s, at + 6),
			       .dst = { raw64(s, at + 24), raw64(s, at + 32) }, .v6 = 1 };
	s->extensions += s->key.proto == FRAGMENT; // a fragment header directly behind IP is not bounded
	s->kind = EXTENSION;
	s->at = at + 40;
	return MORE;
}

// follow_extension follows an extension header of IPv6, if there is one.
inline int follow_extension(struct scratch *s, u32 at) {
	u32 have = s->end - at, n = 8, known = 2; // bytes that a switch reads before the header
	if (!is_extension(s->key.proto)) {
		s->kind = CARRIED;
		return MORE;
	}
	if (s->key.proto == FRAGMENT) {
		known = 4;
		if (read16(s, at + 2) & 0xfff8)
			s->kind = CARRIED_LATER;
	} else if (s->key.proto == AH) {
		n = 4 * (read8(s, at + 1) + 2);
	} else {
		n = 8 * (read8(s, at + 1) + 1);
	}
	if (have < known)
		return TRUNCATED;
	if (s->found ? !take(s, 1) : !s->extensions--)
		return TOO_DEEP;
	if (have < 8 || have < n)
		return TRUNCATED;
	if (for_switches() && n > SWITCH_LENGTH)
		return TOO_DEEP;
	s->key.proto = read8(s, at);
	s->at = at + n;
	return MORE;
}

inline int follow_gre(struct scratch *s, u32 at) {
	u32 have = s->end - at, flags = read16(s, at), n = 4;
	if (!take(s, 1))
		return TOO_DEEP;
	if (have < 4)
		return TRUNCATED;
	if (flags & 0x4007) // source routes, or a version other than 0
		return COUNTERS;
	n += 4 * ((flags >> 15 & 1) + (flags >> 13 & 1) + (flags >> 12 & 1)); // optional checksum, key and sequence number
	if (have < n)
		return TRUNCATED;
	s->kind = read16(s, at + 2);
	s->at = at + n;
	return MORE;
}

inline int follow_udp(struct scratch *s, u32 at) {
	if (!take(s, 1))
		return TOO_DEEP;
	if (s->end - at < 16)
		return TRUNCATED;
	if (!(read8(s, at + 8) & 8))
		return COUNTERS;
	s->kind = ETH_BRIDGED;
	s->at = at + 16;
	return MORE;
}

// follow_ip completes the key of an IP header and follows the packet that it carries.
inline int follow_ip(struct scratch *s, u32 at, bool later) {
	s->found = 1;
	s->key.sport = s->key.dport = 0;
	if (!later && (s->key.proto == TCP || s->key.proto == UDP)) {
		if (s->end - at < 4)
			return TRUNCATED;
		s->key.sport = read16(s, at);
		s->key.dport = read16(s, at + 2);
	}
	if (later || !for_inner() || !is_tunnel(s))
		return COUNTERS;
	switch (s->key.proto) {
	case IPV4_IN_IP:
		s->kind = ETH_IPV4;
		return MORE;
	case IPV6_IN_IP:
		s->kind = ETH_IPV6;
		return MORE;
	case MPLS_IN_IP:
		s->kind = ETH_MPLS;
		return MORE;
	case GRE:
		return follow_gre(s, at);
	}
	return follow_udp(s, at);
}

// follow follows one header. It returns MORE if another header follows, COUNTERS if the packet's
// key is complete, or the counter of packets without a key.
part int follow(void) {
	struct scratch *s = scratch();
	if (!s)
		return NOT_IP; // unreachable
	u32 at = s->at;
	switch (s->kind) {
	case ETH_BRIDGED:
		if (at && !s->found)
			return NOT_IP;
		return take(s, 1) ? next(s, at, 14) : TOO_DEEP;
	case ETH_VLAN:
	case ETH_QINQ:
	case ETH_QINQ_OLD:
		return (s->found ? take(s, 1) : s->tags--) ? next(s, at, 4) : TOO_DEEP;
	case ETH_MPLS:
	case ETH_MPLS_MULTICAST:
		return (s->found ? take(s, 1) : s->labels--) ? follow_label(s, at) : TOO_DEEP;
	case ETH_PPPOE:
		return take(s, 1) ? follow_pppoe(s, at) : TOO_DEEP;
	case ETH_IPV4:
		return follow_ipv4(s, at);
	case ETH_IPV6:
		return follow_ipv6(s, at);
	case EXTENSION:
		return follow_extension(s, at);
	case CARRIED:
		return follow_ip(s, at, false);
	case CARRIED_LATER:
		return follow_ip(s, at, true);
	}
	return s->found ? COUNTERS : NOT_IP;
}

// find_behind sets the key of a packet with any encapsulations, or returns the counter of packets
// without a key. have is the number of bytes in which headers are followed. With switch limits,
// some of them lie behind front; headers are never followed to there.
inline int find_behind(struct scratch *s, u32 have, u32 tags) {
	s->at = s->found = 0;
	s->kind = ETH_BRIDGED;
	s->end = have;
	s->tags = tags;
	s->labels = for_switches() ? SWITCH_LABELS : UNBOUNDED;
	s->extensions = for_switches() ? SWITCH_EXTENSIONS : UNBOUNDED - 1;
	s->carried = for_switches() ? SWITCH_CARRIED : UNBOUNDED;
	int result = MORE;
	for (u32 i = 0; i < FRONT / 4 + 4; i++) { // a step takes at least four bytes on average
		result = follow();
		if (result != MORE)
			break;
	}
	return result;
}

inline u32 crc_address(u32 crc, const u64 *a, u8 v6) {
	crc = crc4(crc, a[0]);
	if (v6)
		crc = crc4(crc4(crc4(crc, a[0] >> 32), a[1]), a[1] >> 32);
	return crc;
}

// hash_of is the hash of the fields of a key.
inline u32 hash_of(const struct key *k, u32 fields) {
	u32 crc = ~0u;
	if (fields & SRC)
		crc = crc_address(crc, k->src, k->v6);
	if (fields & DST)
		crc = crc_address(crc, k->dst, k->v6);
	if (fields & PROTO)
		crc = crc1(crc, k->proto);
	if ((fields & (SRC_PORT | DST_PORT)) == (SRC_PORT | DST_PORT))
		return ~crc4(crc, bpf_htonl((u32)k->sport << 16 | k->dport));
	if (fields & SRC_PORT)
		crc = crc1(crc1(crc, k->sport >> 8), k->sport & 255);
	if (fields & DST_PORT)
		crc = crc1(crc1(crc, k->dport >> 8), k->dport & 255);
	return ~crc;
}

inline u32 mix(u32 h, u32 odd) { return ~crc4(~0u, bpf_htonl(h * odd)); }

// The next functions have no branches: branches that depend on packets are predicted badly, and
// there are no conditional moves. negative returns all ones for a negative number, and 0 for any
// other.
inline u64 negative(s64 v) {
	asm volatile("" : "+r"(v)); // keeps the compiler from making a branch of it
	return v >> 63;
}

inline s64 min(s64 a, s64 b) { return b + ((a - b) & negative(a - b)); }
inline s64 max(s64 a, s64 b) { return a - ((a - b) & negative(a - b)); }

// modulo returns v mod d. Its estimate of the quotient is exact or one too low.
inline u32 modulo(u32 v, const volatile struct divisor *d) {
	u32 n = d->n, rest = v - (u32)(v * d->inverse >> 32) * n;
	return rest >= n ? rest - n : rest;
}

// ones returns the number of leading ones, at most 16.
inline u32 ones(u32 v) {
	u32 n = leading_ones[v >> 24];
	return n == 8 ? 8 + leading_ones[v >> 16 & 255] : n; // a branch that one of 256 packets takes
}

// cell returns a cell of a lane. The comparison shows the verifier that the cell is in the lane, if
// the compiler uses the compared register.
inline u32 *cell(u32 *lane, u32 at) {
	u64 offset = at;
	asm volatile("" : "+r"(offset));
	if (offset >= lane_cells)
		return 0;
	asm volatile("" : "+r"(offset));
	return lane + offset;
}

inline void put(u32 *lane, u32 at, u32 word) {
	u32 *c = cell(lane, at);
	if (c)
		*c = word;
}

inline s32 median(s64 a, s64 b, s64 c) { return max(min(a, b), min(max(a, b), c)); }

// put_address writes the four words of an address. It returns the offset behind them.
inline u32 put_address(u32 *lane, u32 at, const u64 *a) {
#pragma unroll
	for (u32 i = 0; i < 4; i++)
		put(lane, at + i, bpf_ntohl(a[i / 2] >> 32 * (i % 2)));
	return at + 4;
}

// store writes a key into the slot that begins at an offset.
inline void store(u32 *lane, u32 at, const struct key *key, u32 fields, u32 h) {
	put(lane, at + 1, h);
	put(lane, at + 2, (key->v6 ? 6 : 4) << 8 | (fields & PROTO ? key->proto : 0));
	at += 3;
	if (fields & (SRC_PORT | DST_PORT)) {
		put(lane, at, (fields & SRC_PORT ? (u32)key->sport << 16 : 0) | (fields & DST_PORT ? key->dport : 0));
		at++;
	}
	if (fields & SRC)
		at = put_address(lane, at, key->src);
	if (fields & DST)
		put_address(lane, at, key->dst);
}

// row returns twice the packet's cell in the row that begins at a cell, plus 1 for the sign -. If
// shift is 2, four columns share a cell.
inline u32 row(const volatile struct shape *k, u32 h, u32 odd, u32 first, u32 shift) {
	u32 v = modulo(mix(h, odd), &k->cells);
	return 2 * (first + (v >> 1 >> shift)) + (v & 1);
}

// slot returns the first cell of the packet's slot in the way that begins at a cell.
inline u32 slot(const volatile struct shape *k, u32 h, u32 odd, u32 first, u32 shift) {
	return first + (modulo(mix(h, odd), &k->slots) >> shift) * k->words;
}

// find finds the cells of a flow in a sketch.
inline void find(struct flow *f, u32 i) {
	const volatile struct shape *k = &shapes[i];
	struct place *p = &f->places[i];
	u32 h = hash_of(&f->key, k->fields), level = ones(mix(h, ODD_LEVEL)), columns = k->columns;
	u32 slots = k->slots.n, shift = 0;
	level = min(level, k->levels - 1);
	p->h = h;
	p->level = k->packets + level;
	u32 first = k->counters + level * k->rows * columns, first_slot = k->heavy + level * k->ways * slots * k->words;
	if (level >= WIDE) {
		columns = k->deep_columns;
		slots = k->deep_slots;
		shift = 2;
		first = k->counters + k->rows * (WIDE * k->columns + (level - WIDE) * columns);
		first_slot = k->heavy + k->ways * (WIDE * k->slots.n + (level - WIDE) * slots) * k->words;
	}
	p->rows[0] = row(k, h, ODD_ROW0, first, shift);
	p->rows[1] = row(k, h, ODD_ROW1, first + columns, shift);
	p->rows[2] = row(k, h, ODD_ROW2, first + 2 * columns, shift);
	p->rows[3] = p->rows[4] = p->rows[0];
	if (k->rows > 3)
		p->rows[3] = row(k, h, ODD_ROW3, first + 3 * columns, shift);
	if (k->rows > 4)
		p->rows[4] = row(k, h, ODD_ROW4, first + 4 * columns, shift);
	u32 way = slots * k->words;
	p->slots[0] = slot(k, h, ODD_WAY0, first_slot, shift);
	p->slots[1] = slot(k, h, ODD_WAY1, first_slot + way, shift);
	p->slots[2] = p->slots[3] = p->slots[0];
	if (k->ways > 2)
		p->slots[2] = slot(k, h, ODD_WAY2, first_slot + 2 * way, shift);
	if (k->ways > 3)
		p->slots[3] = slot(k, h, ODD_WAY3, first_slot + 3 * way, shift);
	p->best = p->slots[0];
}

inline bool is(const struct key *a, const struct key *b) {
	return a->src[0] == b->src[0] && a->src[1] == b->src[1] && a->dst[0] == b->dst[0] && a->dst[1] == b->dst[1] &&
	       *(u64 *)&a->sport == *(u64 *)&b->sport;
}

// flow_of returns the flow of the packet with its places. A flow is remembered from its second
// packet in a row that finds another flow in its place, so that flows with few packets do not
// replace large ones.
inline struct flow *flow_of(struct scratch *s, bool *fresh) {
	const struct key *k = &s->key;
	u64 h = step(step(0, k->src[0] ^ k->dst[1]), k->dst[0] ^ k->src[1]);
	h = step(h, *(u64 *)&k->sport);
	u32 processor = bpf_get_smp_processor_id(), place = h >> 32 & (FLOWS - 1), at = processor * FLOWS + place;
	struct tags *all = bpf_map_lookup_elem(&tags, &processor);
	struct flow *f = bpf_map_lookup_elem(&flows, &at);
	if (!all || !f)
		return 0; // unreachable
	struct tag *t = &all->tag[place];
	u16 tag = h | 1;
	*fresh = t->flow != tag || !is(&f->key, k);
	if (!*fresh)
		return f;
	if (t->other == tag) {
		t->flow = tag;
	} else {
		t->other = tag;
		f = &s->flow;
	}
	f->key = *k;
	for (u32 i = 0; i < MAX_SKETCHES; i++) {
		if (i >= sketches)
			break;
		find(f, i);
	}
	return f;
}

// touch reads a cell, so that it will be in the cache.
inline void touch(const u32 *lane, u64 at) {
	asm volatile("" : "+r"(at)); // as in cell
	if (at < lane_cells) {
		asm volatile("" : "+r"(at));
		(void)*(const volatile u32 *)(lane + at);
	}
}

// touch_all reads the cells of a flow one right after the other, so that the processor waits for
// all of them at the same time. It leaves out the counts of levels, which are few and in the cache.
inline void touch_all(const struct flow *f, const u32 *lane, bool fresh) {
	for (u32 i = 0; i < MAX_SKETCHES; i++) {
		if (i >= sketches)
			break;
		const struct place *p = &f->places[i];
		touch(lane, p->rows[0] >> 1);
		touch(lane, p->rows[1] >> 1);
		touch(lane, p->rows[2] >> 1);
		touch(lane, p->best);
		if (!fresh)
			continue;
		touch(lane, p->slots[1]);
		touch(lane, p->slots[2]);
		touch(lane, p->slots[3]);
	}
}

// count_row counts packets in a row and returns the row's estimate.
inline s32 count_row(u32 *lane, u32 row, u32 packets) {
	u32 *c = cell(lane, row >> 1);
	if (!c)
		return 0; // unreachable
	s32 sign = 1 - 2 * (s32)(row & 1);
	u32 n = *c + packets * sign;
	*c = n;
	return n * sign;
}

// place_of describes a slot: whether it holds the key, and the rank of its flow. The flow with the
// lowest rank is replaced first.
struct place_of {
	s64 rank;
	u32 at;
};

// rank orders flows by their counts. Of flows with equal counts, the flow with the smallest hash
// has the highest rank.
inline s64 rank(u32 count, u32 hash) { return (u64)count << 32 | (u32)~hash; }

// lower returns the slot with the lower rank, or the first slot if the ranks are equal. The slot
// that holds the key has rank 0, which is below all others.
inline struct place_of lower(struct place_of best, u32 *lane, u32 at, u32 h) {
	u32 *count = cell(lane, at), *hash = cell(lane, at + 1);
	if (!count || !hash)
		return best; // unreachable
	s64 n = *count, other = *hash ^ h;
	s64 holds = negative(other - 1) & ~negative(n - 1); // all ones if hash and count show the key
	s64 own = rank(n, *hash) & ~holds, less = negative(own - best.rank);
	best.rank += (own - best.rank) & less;
	best.at += (at - best.at) & (u32)less;
	return best;
}

// best_of returns the slot that holds the key. If no slot holds it, it returns the slot whose flow
// is replaced first.
inline struct place_of best_of(const volatile struct shape *k, const struct place *p, u32 *lane) {
	struct place_of best = { .rank = 0x7fffffffffffffff, .at = p->slots[0] };
	best = lower(best, lane, p->slots[0], p->h);
	best = lower(best, lane, p->slots[1], p->h);
	if (k->ways > 2)
		best = lower(best, lane, p->slots[2], p->h);
	if (k->ways > 3)
		best = lower(best, lane, p->slots[3], p->h);
	return best;
}

// count counts packets in the cells of a flow in a sketch.
inline void count(struct flow *f, u32 *lane, u32 i, u32 packets) {
	const volatile struct shape *k = &shapes[i];
	struct place *p = &f->places[i];
	u32 *c = cell(lane, p->level);
	if (c)
		*c += packets;
	s32 row0 = count_row(lane, p->rows[0], packets), row1 = count_row(lane, p->rows[1], packets),
	    row2 = count_row(lane, p->rows[2], packets);
	if (k->rows > 3)
		count_row(lane, p->rows[3], packets);
	if (k->rows > 4)
		count_row(lane, p->rows[4], packets);
	s32 estimate = median(row0, row1, row2);
	if (estimate <= 0)
		return;

	// At most one slot holds the key. If the slot of the last packet still holds it, the others
	// need not be read.
	u32 *held = cell(lane, p->best), *hash = cell(lane, p->best + 1);
	if (!held || !hash)
		return; // unreachable
	if (*held && *hash == p->h) {
		if ((u32)estimate > *held)
			*held = estimate;
		return;
	}
	struct place_of best = best_of(k, p, lane);
	p->best = best.at;
	held = cell(lane, best.at);
	if (!held)
		return; // unreachable
	if (!best.rank) { // the slot holds the key
		if ((u32)estimate > *held)
			*held = estimate;
		return;
	}
	if (rank(estimate, p->h) <= best.rank)
		return;
	*held = estimate;
	store(lane, best.at, &f->key, k->fields, p->h);
}

inline u32 size_of(const struct __sk_buff *skb, u32 most) { return skb->len < most ? skb->len : most; }

// load copies the first bytes of a packet, at most SWITCH_FRONT.
inline bool load(struct __sk_buff *skb, struct scratch *s, u32 most) {
	u32 size = size_of(skb, most);
	asm volatile("" : "+r"(size)); // the verifier derives the range of the size from the mask
	return !bpf_skb_load_bytes(skb, 0, s->front, ((size - 1) & (SWITCH_FRONT - 1)) + 1);
}

// measure counts a packet. A packet that is segmented later counts as all its segments.
inline int measure(struct __sk_buff *skb, u32 direction) {
	u32 zero = 0;
	struct control_block *c = bpf_map_lookup_elem(&control, &zero);
	struct scratch *s = scratch();
	if (!c || !s)
		return NEXT; // unreachable
	u32 number = bpf_get_smp_processor_id() * GROUPS + (*(volatile u32 *)&c->active & 1);
	struct counts *n = bpf_map_lookup_elem(&lanes, &number);
	if (!n)
		return NEXT; // unreachable
	s->packets = segments(skb);
	n->counters[direction] += s->packets;
	u32 reason = MORE, outside = skb->vlan_present ? 1 : 0; // a tag that is not in the packet
	if (for_switches())
		reason = find_key(skb, s);
	if (reason == MORE) {
		u32 end = for_switches() ? skb->len : size_of(skb, FRONT);
		u32 tags = for_switches() ? SWITCH_TAGS - outside : UNBOUNDED;
		reason = load(skb, s, encapsulation == SWITCH_INNER ? SWITCH_FRONT : FRONT) ? find_behind(s, end, tags) : TRUNCATED;
		if (!for_switches() && reason == TRUNCATED && skb->len > FRONT)
			reason = TOO_DEEP;
	}
	if (reason < COUNTERS) {
		asm volatile("" : "+r"(reason)); // as in load
		n->counters[reason & 15] += s->packets;
		return NEXT;
	}
	u32 *lane = bpf_map_lookup_elem(&cells, &number);
	bool fresh;
	struct flow *f = flow_of(s, &fresh);
	if (!f || !lane)
		return NEXT; // unreachable
	touch_all(f, lane, fresh);
	for (u32 i = 0; i < MAX_SKETCHES; i++) {
		if (i >= sketches)
			break;
		count(f, lane, i, s->packets);
	}
	return NEXT;
}

SEC("tc")
int send(struct __sk_buff *skb) { return measure(skb, SENT); }

SEC("tc")
int receive(struct __sk_buff *skb) { return measure(skb, RECEIVED); }

char _license[] SEC("license") = "Apache-2.0";

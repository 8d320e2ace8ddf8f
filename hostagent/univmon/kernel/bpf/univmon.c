// SPDX-License-Identifier: Apache-2.0

// UnivMon's host role in the kernel: the same cells and counts as package hostagent/univmon, which
// are those of p4/programs/include/univmon.p4. Packets pass unchanged.
//
// There are two groups of cells for each processor; the agent switches between them, and adds up and
// clears the group that no processor uses any more.

#define CRC_BYTES 4
#include "../../../kernel/bpf/packet.h"

enum {
	FRONT = 256, // bytes of a packet in which headers are found
	SWITCH_FRONT = 1024, // the same with SWITCH_INNER, which stops before
	GROUPS = 2,
	MAX_SKETCHES = 8,
	NEXT = -1, // TCX: the next program decides
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

// How many headers a switch parses, as in package packet: 250 bytes at most, and behind the first IP
// header 8 * 48 more.
enum {
	SWITCH_TAGS = 4,
	SWITCH_LABELS = 6,
	SWITCH_EXTENSIONS = 3,
	SWITCH_LENGTH = 48, // of an extension header
	SWITCH_CARRIED = 8,
	UNBOUNDED = 255,
};

// What a header is, besides EtherTypes.
enum {
	EXTENSION = 0x10000, // of IPv6
	CARRIED = 0x10001,   // by an IP packet
	CARRIED_LATER = 0x10002, // by a later fragment
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

// divisor is a number and what divides by it: 2^32 / n, rounded down.
struct divisor {
	u64 inverse;
	u32 n;
	u32 unused;
};

// shape is that of a sketch. Cells are counted from the begin of a lane.
struct shape {
	struct divisor cells, slots; // twice the columns; slots of a way
	u32 counters, heavy, packets; // first cells
	u32 levels, rows, columns, ways, words;
	u32 fields, unused;
};

volatile const u8 leading_ones[256]; // of a byte
volatile const u32 encapsulation;
volatile const u32 sketches;
volatile const struct shape shapes[MAX_SKETCHES];
volatile const u32 lane_cells; // of a processor in a group

struct counts {
	u64 counters[16];
};

struct control_block {
	u32 active; // group
	u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct control_block);
} control SEC(".maps");

// By processor and group, as the next one.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counts);
} lanes SEC(".maps");

// The cells of a lane are one value: the agent sets its size.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} cells SEC(".maps");

// place is what a packet needs of a sketch.
struct place {
	u32 h, level; // hash of the key; cell of the level's packets
	u32 rows[5];  // twice the cells, and 1 for the sign -
	u32 slots[4]; // first cells
};

struct scratch {
	u8 front[SWITCH_FRONT + 16];
	u32 src[4], dst[4]; // in network order; an IPv4 address is the first word
	u32 ports;          // in network order
	u8 proto, v6;
	u16 found; // the key is of a header, which is the packet's if no other one follows
	u32 packets;
	u32 at, kind, end; // of the next header; bytes that are followed
	u8 tags, labels, extensions; // that may follow
	u8 carried;                  // of all kinds, in tunnels
	struct place places[MAX_SKETCHES];
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

// Offsets into front are below its size, which the comparisons show to the verifier.
inline u8 read8(const struct scratch *s, u32 at) { return at < SWITCH_FRONT ? s->front[at] : 0; }
inline u16 raw16(const struct scratch *s, u32 at) { return at < SWITCH_FRONT ? *(u16 *)(s->front + at) : 0; }
inline u32 raw32(const struct scratch *s, u32 at) { return at < SWITCH_FRONT ? *(u32 *)(s->front + at) : 0; }
inline u16 read16(const struct scratch *s, u32 at) { return bpf_ntohs(raw16(s, at)); }

// is_valid returns whether the sum of the 16-bit words of an IPv4 header, of which the given sum has
// pairs, has all ones.
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

// is_tunnel reports whether an IP packet with this key carries another packet, or may.
inline bool is_tunnel(const struct scratch *s) {
	switch (s->proto) {
	case IPV4_IN_IP:
	case IPV6_IN_IP:
	case GRE:
	case MPLS_IN_IP:
		return true;
	case UDP:
		return s->ports >> 16 == bpf_htons(VXLAN_PORT);
	}
	return false;
}

// find_key sets the key of a packet without encapsulations, or returns the counter of packets without
// one, or MORE. It is faster than find_behind.
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
	s->v6 = h.key.v6;
#pragma unroll
	for (u32 i = 0; i < 4; i++) {
		s->src[i] = h.key.src[i / 2] >> 32 * (i % 2);
		s->dst[i] = h.key.dst[i / 2] >> 32 * (i % 2);
	}
	s->proto = h.key.proto;
	s->ports = bpf_htonl((u32)h.key.sport << 16 | h.key.dport);
	if (h.key.v6 && !h.later && is_extension(s->proto))
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

// take takes n headers, if this is in a tunnel, from those that may follow there.
inline bool take(struct scratch *s, u32 n) {
	if (!s->found)
		return true;
	if (s->carried < n)
		return false;
	s->carried -= n;
	return true;
}

// next takes n bytes, which end with the EtherType of the next header.
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
	if (!take(s, 1 + (header - 20) / 4)) // and each word of options
		return TOO_DEEP;
	if (n < header)
		return TRUNCATED;
	u8 protocol = read8(s, at + 9);
	s->kind = read16(s, at + 6) & 0x1fff ? CARRIED_LATER : CARRIED;
	if (s->kind == CARRIED && (protocol == TCP || protocol == UDP) && n < header + 4)
		return TRUNCATED;
	if (!valid_checksum(s, at, header))
		return BAD_CHECKSUM;
	s->v6 = 0;
	s->src[0] = raw32(s, at + 12);
	s->dst[0] = raw32(s, at + 16);
	s->src[1] = s->src[2] = s->src[3] = 0;
	s->dst[1] = s->dst[2] = s->dst[3] = 0;
	s->proto = protocol;
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
	s->v6 = 1;
#pragma unroll
	for (u32 i = 0; i < 4; i++) {
		s->src[i] = raw32(s, at + 8 + 4 * i);
		s->dst[i] = raw32(s, at + 24 + 4 * i);
	}
	s->proto = read8(s, at + 6);
	s->extensions += s->proto == FRAGMENT; // one right here is not bounded
	s->kind = EXTENSION;
	s->at = at + 40;
	return MORE;
}

// follow_extension follows an extension header of IPv6, if there is one.
inline int follow_extension(struct scratch *s, u32 at) {
	u32 have = s->end - at, n = 8, known = 2; // bytes that a switch reads before the header
	if (!is_extension(s->proto)) {
		s->kind = CARRIED;
		return MORE;
	}
	if (s->proto == FRAGMENT) {
		known = 4;
		if (read16(s, at + 2) & 0xfff8)
			s->kind = CARRIED_LATER;
	} else if (s->proto == AH) {
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
	s->proto = read8(s, at);
	s->at = at + n;
	return MORE;
}

inline int follow_gre(struct scratch *s, u32 at) {
	u32 have = s->end - at, flags = read16(s, at), n = 4;
	if (!take(s, 1))
		return TOO_DEEP;
	if (have < 4)
		return TRUNCATED;
	if (flags & 0x4007) // source routes, or another version
		return COUNTERS;
	n += 4 * ((flags >> 15 & 1) + (flags >> 13 & 1) + (flags >> 12 & 1)); // checksum, key, number
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

// follow_ip completes the key of an IP header, and follows the packet that it carries.
inline int follow_ip(struct scratch *s, u32 at, bool later) {
	s->found = 1;
	s->ports = 0;
	if (!later && (s->proto == TCP || s->proto == UDP)) {
		if (s->end - at < 4)
			return TRUNCATED;
		s->ports = raw32(s, at);
	}
	if (later || !for_inner() || !is_tunnel(s))
		return COUNTERS;
	switch (s->proto) {
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

// follow follows one header. It returns MORE, COUNTERS with the key of the packet, or the counter of
// packets without one.
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
// without one. have is the count of bytes that are followed, some of them behind front for switches,
// which follow no headers to there.
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

inline u32 crc_address(u32 crc, const u32 *a, u8 v6) {
	crc = crc4(crc, a[0]);
	if (v6)
		crc = crc4(crc4(crc4(crc, a[1]), a[2]), a[3]);
	return crc;
}

// hash_of is the hash of the fields of the key.
inline u32 hash_of(const struct scratch *s, u32 fields) {
	u32 crc = ~0u;
	if (fields & SRC)
		crc = crc_address(crc, s->src, s->v6);
	if (fields & DST)
		crc = crc_address(crc, s->dst, s->v6);
	if (fields & PROTO)
		crc = crc1(crc, s->proto);
	if ((fields & (SRC_PORT | DST_PORT)) == (SRC_PORT | DST_PORT))
		return ~crc4(crc, s->ports);
	if (fields & SRC_PORT)
		crc = crc1(crc1(crc, s->ports & 255), s->ports >> 8 & 255);
	if (fields & DST_PORT)
		crc = crc1(crc1(crc, s->ports >> 16 & 255), s->ports >> 24);
	return ~crc;
}

inline u32 mix(u32 h, u32 odd) { return ~crc4(~0u, bpf_htonl(h * odd)); }

// The next functions have no branches: those that depend on packets are predicted badly, and there
// are no conditional moves. negative is all ones for a negative number, else 0.
inline u64 negative(s64 v) {
	asm volatile("" : "+r"(v)); // the compiler would make a branch of it
	return v >> 63;
}

inline s64 min(s64 a, s64 b) { return b + ((a - b) & negative(a - b)); }
inline s64 max(s64 a, s64 b) { return a - ((a - b) & negative(a - b)); }

// modulo is v mod d: the quotient is exact or one too low.
inline u32 modulo(u32 v, const volatile struct divisor *d) {
	u32 n = d->n, rest = v - (u32)(v * d->inverse >> 32) * n;
	return rest >= n ? rest - n : rest;
}

// ones is the count of leading ones, 16 at most.
inline u32 ones(u32 v) {
	u32 n = leading_ones[v >> 24];
	return n == 8 ? 8 + leading_ones[v >> 16 & 255] : n; // a branch, taken for one of 256
}

// cell returns a cell of a lane. The comparison shows the verifier that it is in there, if the
// compiler uses the register that was compared.
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

// put_address writes the four words of an address and returns the offset behind them.
inline u32 put_address(u32 *lane, u32 at, const u32 *a) {
#pragma unroll
	for (u32 i = 0; i < 4; i++)
		put(lane, at + i, bpf_ntohl(a[i]));
	return at + 4;
}

// store writes the key of the packet into the slot that begins at an offset.
inline void store(u32 *lane, u32 at, const struct scratch *s, u32 fields, u32 h) {
	put(lane, at + 1, h);
	put(lane, at + 2, (s->v6 ? 6 : 4) << 8 | (fields & PROTO ? s->proto : 0));
	at += 3;
	if (fields & (SRC_PORT | DST_PORT)) {
		u32 ports = bpf_ntohl(s->ports);
		put(lane, at, (fields & SRC_PORT ? ports & 0xffff0000 : 0) | (fields & DST_PORT ? ports & 0xffff : 0));
		at++;
	}
	if (fields & SRC)
		at = put_address(lane, at, s->src);
	if (fields & DST)
		put_address(lane, at, s->dst);
}

// row is twice the cell of the packet in a row that begins with a cell, and 1 for the sign -.
inline u32 row(const volatile struct shape *k, u32 h, u32 odd, u32 first) {
	return 2 * first + modulo(mix(h, odd), &k->cells);
}

// slot is the first cell of the slot of the packet in a way that begins with a cell.
inline u32 slot(const volatile struct shape *k, u32 h, u32 odd, u32 first) {
	return first + modulo(mix(h, odd), &k->slots) * k->words;
}

// find finds the cells of the packet in a sketch.
inline void find(struct scratch *s, u32 i) {
	const volatile struct shape *k = &shapes[i];
	struct place *p = &s->places[i];
	u32 h = hash_of(s, k->fields), level = ones(mix(h, ODD_LEVEL)), columns = k->columns;
	level = min(level, k->levels - 1);
	p->h = h;
	p->level = k->packets + level;
	u32 first = k->counters + level * k->rows * columns;
	p->rows[0] = row(k, h, ODD_ROW0, first);
	p->rows[1] = row(k, h, ODD_ROW1, first + columns);
	p->rows[2] = row(k, h, ODD_ROW2, first + 2 * columns);
	p->rows[3] = p->rows[4] = p->rows[0];
	if (k->rows > 3)
		p->rows[3] = row(k, h, ODD_ROW3, first + 3 * columns);
	if (k->rows > 4)
		p->rows[4] = row(k, h, ODD_ROW4, first + 4 * columns);
	u32 way = k->slots.n * k->words;
	first = k->heavy + level * k->ways * way;
	p->slots[0] = slot(k, h, ODD_WAY0, first);
	p->slots[1] = slot(k, h, ODD_WAY1, first + way);
	p->slots[2] = p->slots[3] = p->slots[0];
	if (k->ways > 2)
		p->slots[2] = slot(k, h, ODD_WAY2, first + 2 * way);
	if (k->ways > 3)
		p->slots[3] = slot(k, h, ODD_WAY3, first + 3 * way);
}

// touch reads a cell, which is then in the cache soon.
inline void touch(const u32 *lane, u32 size, u64 at) {
	asm volatile("" : "+r"(at)); // as in cell
	if (at < size) {
		asm volatile("" : "+r"(at));
		(void)*(const volatile u32 *)(lane + at);
	}
}

// touch_all reads the cells of the packet one right after the other, so that the processor waits for
// all of them at the same time. The counts of levels are few and in the cache.
inline void touch_all(const struct scratch *s, const u32 *lane) {
	const u32 size = lane_cells;
	for (u32 i = 0; i < MAX_SKETCHES; i++) {
		if (i >= sketches)
			break;
		const struct place *p = &s->places[i];
		touch(lane, size, p->rows[0] >> 1);
		touch(lane, size, p->rows[1] >> 1);
		touch(lane, size, p->rows[2] >> 1);
		touch(lane, size, p->slots[0]);
		touch(lane, size, p->slots[1]);
		touch(lane, size, p->slots[2]);
		touch(lane, size, p->slots[3]);
	}
}

// count_row counts in a row and returns its estimate.
inline s32 count_row(u32 *lane, u32 row, u32 packets) {
	u32 *c = cell(lane, row >> 1);
	if (!c)
		return 0; // unreachable
	s32 sign = 1 - 2 * (s32)(row & 1);
	u32 n = *c + packets * sign;
	*c = n;
	return n * sign;
}

// rank orders slots: first the one that holds the key, with rank 0 above its place, then by count,
// then by way.
enum {
	AT_BITS = 26, // of 64 MiB at most, with what follows the sketches
	PLACE_BITS = AT_BITS + 2,
};

inline s64 rank(u32 *lane, u32 at, u32 way, u32 h) {
	u32 *count = cell(lane, at), *hash = cell(lane, at + 1);
	if (!count || !hash)
		return 0; // unreachable
	u64 n = *count, other = *hash ^ h;
	u64 holds = negative((s64)other - 1) & ~negative((s64)n - 1); // same hash, and a count
	return ((n + 1) & ~holds) << PLACE_BITS | way << AT_BITS | at;
}

// count counts the packets in the cells of a sketch that were found.
inline void count(struct scratch *s, u32 *lane, u32 i) {
	const volatile struct shape *k = &shapes[i];
	const struct place *p = &s->places[i];
	u32 packets = s->packets, *c = cell(lane, p->level);
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

	// The slot that holds the key, else the first one with the lowest count.
	s64 best = min(rank(lane, p->slots[0], 0, p->h), rank(lane, p->slots[1], 1, p->h));
	if (k->ways > 2)
		best = min(best, rank(lane, p->slots[2], 2, p->h));
	if (k->ways > 3)
		best = min(best, rank(lane, p->slots[3], 3, p->h));
	u32 at = best & ((1 << AT_BITS) - 1), *held = cell(lane, at);
	if (!held || (u32)estimate <= *held)
		return;
	*held = estimate;
	if (best >> PLACE_BITS) // another key, or none
		store(lane, at, s, k->fields, p->h);
}

inline u32 size_of(const struct __sk_buff *skb, u32 most) { return skb->len < most ? skb->len : most; }

// load copies the begin of a packet, at most SWITCH_FRONT bytes.
inline bool load(struct __sk_buff *skb, struct scratch *s, u32 most) {
	u32 size = size_of(skb, most);
	asm volatile("" : "+r"(size)); // the verifier derives the range of the size from the mask
	return !bpf_skb_load_bytes(skb, 0, s->front, ((size - 1) & (SWITCH_FRONT - 1)) + 1);
}

// measure counts a packet, or a packet that is segmented later as all of its segments.
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
	u32 reason = MORE, outside = skb->vlan_present ? 1 : 0; // tags that are not in the packet
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
	for (u32 i = 0; i < MAX_SKETCHES; i++) {
		if (i >= sketches)
			break;
		find(s, i);
	}
	u32 *lane = bpf_map_lookup_elem(&cells, &number);
	if (!lane)
		return NEXT; // unreachable
	touch_all(s, lane);
	for (u32 i = 0; i < MAX_SKETCHES; i++) {
		if (i >= sketches)
			break;
		count(s, lane, i);
	}
	return NEXT;
}

SEC("tc")
int send(struct __sk_buff *skb) { return measure(skb, SENT); }

SEC("tc")
int receive(struct __sk_buff *skb) { return measure(skb, RECEIVED); }

char _license[] SEC("license") = "Apache-2.0";

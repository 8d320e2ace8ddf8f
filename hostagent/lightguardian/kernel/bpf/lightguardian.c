// SPDX-License-Identifier: Apache-2.0

// LightGuardian's host role in the kernel: the same packets, sketchlets and counts as package
// hostagent/lightguardian. Program receive removes sketchlets from packets and copies them to map
// sketchlets; it and program send count the packets of flows.
//
// There are two groups of counts and flows; the agent switches between them, and reads and clears
// the group that no processor uses any more. Removal does not depend on settings.

#define CRC_BYTES 8
#include "../../../kernel/bpf/packet.h"

enum {
	TCP_MARK = 0x08, // in the byte of the data offset
	UDP_MARK = 0x80, // in the byte of the flags of IPv4
	FRONT = 160,     // more than the longest headers: 14 + 2 * 4 + 60 + 60 bytes
	SKETCHLET = 1040, // more than the longest one: 10 + 255 * 4 bytes
	WORDS_AT = 9,
	HEADER = 10,
	GROUPS = 2,
	MAX_FLOWS = 1 << 17, // of a group
	NEXT = -1,           // TCX: the next program decides
	BEFORE_CHECK = 0x9a1c9d90, // the state of CRC-32 that is that of its begin two bytes of zero later
};

// Counters, as in package wire.
enum {
	PACKETS,
	SENT,
	SKETCHLETS,
	IN_BAND_BYTES,
	SHORT,
	BAD_CHECK,
	UNKNOWN_DEVICE,
	UNKNOWN_COLUMN,
	WRONG_WORDS,
	DUPLICATES,
	FULL,
	FLOWS_FULL,
	DISAGREEING,
	DROPPED,
	STALE,
	UNREAD,
	NO_FLOW,
	COUNTERS,
};

// Bytes of map sketchlets for each processor, a power of two, without those of a record that begins
// before their end.
volatile const u32 lane_bytes;

struct flow_counts {
	u64 sent, received;
};

struct counts {
	u64 counters[24];
};

// event is the begin of a record in map sketchlets. The sketchlet follows, up to a multiple of 8
// bytes.
struct event {
	u64 at; // time of the kernel's monotonic clock, in ns
	u32 group;
	u16 keyed, size; // of the sketchlet
	struct key key;  // if keyed
};

struct record {
	struct event event;
	u8 sketchlet[SKETCHLET];
};

// ring is the part of a processor of map sketchlets: bytes that were written and that were read.
struct ring {
	u64 written, jiffies, now, unused[5], read, unused_too[7];
};

struct control_block {
	u32 active; // group
	u32 limit;  // of flows in a group
	u32 used[GROUPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct control_block);
} control SEC(".maps");

// By processor and group.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counts);
} lanes SEC(".maps");

struct flow_table {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct key);
	__type(value, struct flow_counts);
} flows_0 SEC(".maps"), flows_1 SEC(".maps"); // of the groups

// By processor: records one behind another, behind them room for one that begins before the end,
// and a record that nothing reads, of a sketchlet without room.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct record));
} sketchlets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ring);
} rings SEC(".maps");

// packet is the packet in work. Offsets are from the begin of the frame.
struct packet {
	u32 ip, l4, payload, end;
	u8 v6, udp;
};

struct scratch {
	u8 front[FRONT + 16];
	struct packet packet;
	struct key key;
	u32 place, keyed; // with packet in memory for the verifier: it follows one path for all values
	struct record record; // of a sketchlet that is not in the first part of the frame
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

inline struct counts *counts_of(u32 group) {
	u32 at = bpf_get_smp_processor_id() * GROUPS + group;
	return bpf_map_lookup_elem(&lanes, &at);
}

// Offsets into front are below FRONT, which the comparisons show to the verifier.
inline u8 read8(const struct scratch *s, u32 at) { return at < FRONT ? s->front[at] : 0; }
inline u16 raw16(const struct scratch *s, u32 at) { return at < FRONT ? *(u16 *)(s->front + at) : 0; }
inline u32 raw32(const struct scratch *s, u32 at) { return at < FRONT ? *(u32 *)(s->front + at) : 0; }
inline u64 raw64(const struct scratch *s, u32 at) { return at < FRONT ? *(u64 *)(s->front + at) : 0; }
inline u16 read16(const struct scratch *s, u32 at) { return bpf_ntohs(raw16(s, at)); }

inline void write8(struct scratch *s, u32 at, u8 v) {
	if (at < FRONT)
		s->front[at] = v;
}

inline void write_raw16(struct scratch *s, u32 at, u16 v) {
	if (at < FRONT)
		*(u16 *)(s->front + at) = v;
}

// link returns the offset of the IP header in a frame of which the first bytes are read, or 0
// without one.
inline u32 link(const struct scratch *s, u32 have, u16 *type) {
	u32 at = 12;
#pragma unroll
	for (u32 i = 0; i < 2; i++) {
		if (have < at + 2)
			return 0;
		u16 t = read16(s, at);
		if (!is_tag(t))
			break;
		at += 4;
	}
	if (have < at + 2)
		return 0;
	*type = read16(s, at);
	return *type == ETH_IPV4 || *type == ETH_IPV6 ? at + 2 : 0;
}

// find_key sets the key of a packet whose headers are valid.
inline bool find_key(const struct scratch *s, u32 type, u32 ip, u32 have, struct key *k) {
	u32 n = have - ip, l4 = 40;
	bool later;
	k->sport = k->dport = k->zero = 0;
	k->src[1] = k->dst[1] = 0;
	if (type == ETH_IPV4) {
		l4 = (read8(s, ip) & 15) * 4;
		if (n < 20 || read8(s, ip) >> 4 != 4 || l4 < 20 || n < l4 || read16(s, ip + 2) < l4)
			return false;
		k->v6 = 0;
		k->src[0] = raw32(s, ip + 12);
		k->dst[0] = raw32(s, ip + 16);
		k->proto = read8(s, ip + 9);
		later = read16(s, ip + 6) & 0x1fff;
	} else {
		if (n < 40 || read8(s, ip) >> 4 != 6)
			return false;
		k->v6 = 1;
		k->src[0] = raw64(s, ip + 8);
		k->src[1] = raw64(s, ip + 16);
		k->dst[0] = raw64(s, ip + 24);
		k->dst[1] = raw64(s, ip + 32);
		k->proto = read8(s, ip + 6);
		later = false;
		if (k->proto == FRAGMENT) {
			if (n < 48)
				return false;
			k->proto = read8(s, ip + 40);
			later = read16(s, ip + 42) & 0xfff8;
			l4 = 48;
		}
	}
	if (later || (k->proto != TCP && k->proto != UDP))
		return true;
	if (n < l4 + (k->proto == TCP ? 20 : 8))
		return false;
	k->sport = read16(s, ip + l4);
	k->dport = read16(s, ip + l4 + 2);
	return true;
}

// room_for takes room for a flow, or returns false.
inline bool room_for(struct control_block *c, u32 group) {
	u32 *used = &c->used[group], limit = c->limit < MAX_FLOWS ? c->limit : MAX_FLOWS;
	if (__sync_fetch_and_add(used, 1) < limit)
		return true;
	__sync_fetch_and_add(used, -1);
	return false;
}

// flow_of returns the counts of a flow, or null without room.
inline struct flow_counts *flow_of(struct control_block *c, struct flow_table *flows, u32 group, const struct key *k) {
	struct flow_counts none = {}, *f = bpf_map_lookup_elem(flows, k);
	if (f || !room_for(c, group))
		return f;
	if (bpf_map_update_elem(flows, k, &none, BPF_NOEXIST))
		__sync_fetch_and_add(&c->used[group], -1); // another processor added it, or there is no memory
	return bpf_map_lookup_elem(flows, k);
}

// count counts packets of the flow of the packet: sent ones, or if there are none, one that was
// received. It returns 1 if the flow has room.
part int count(u32 group, u32 type, u32 ip, u32 have, u32 sent) {
	struct control_block *c = state();
	struct scratch *s = scratch();
	struct counts *n = counts_of(group);
	if (!c || !s || !n)
		return 0; // unreachable
	u32 packets = sent ? sent : 1;
	if (!find_key(s, type, ip, have, &s->key)) {
		n->counters[NO_FLOW] += packets;
		return 0;
	}
	struct flow_counts *f = group ? flow_of(c, &flows_1, 1, &s->key) : flow_of(c, &flows_0, 0, &s->key);
	if (!f)
		n->counters[FLOWS_FULL] += packets;
	else if (sent)
		__sync_fetch_and_add(&f->sent, sent);
	else
		__sync_fetch_and_add(&f->received, 1);
	return f != 0;
}

// locate finds the payload of a packet with the carry mark, or returns false. The end is that of the
// IP packet, which may be beyond the frame.
inline bool locate(const struct scratch *s, struct packet *p, u32 type, u32 ip, u32 have) {
	u32 n = have - ip;
	u8 proto, first = read8(s, ip);
	p->ip = ip;
	p->v6 = type == ETH_IPV6;
	if (!p->v6) {
		p->l4 = (first & 15) * 4;
		p->end = read16(s, ip + 2);
		if (n < 20 || first >> 4 != 4 || p->l4 < 20 || read16(s, ip + 6) & 0x3fff)
			return false;
		proto = read8(s, ip + 9);
	} else {
		if (n < 40 || first >> 4 != 6)
			return false;
		p->l4 = 40;
		p->end = 40 + read16(s, ip + 4);
		proto = read8(s, ip + 6);
	}
	p->udp = proto == UDP;
	p->payload = p->l4 + 8;
	if (proto == TCP) {
		u8 offset = read8(s, ip + p->l4 + 12);
		u32 header = (offset >> 4) * 4;
		if (n < p->l4 + 20 || !(offset & TCP_MARK) || header < 20)
			return false;
		p->payload = p->l4 + header;
	} else if (!p->udp || p->v6 || !(read8(s, ip + 6) & UDP_MARK)) {
		return false;
	}
	return true;
}

// load_front reads the first bytes of a frame and returns how many, or 0.
inline u32 load_front(struct xdp_md *xdp, struct scratch *s) {
	const u64 *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	if (data + FRONT / 8 <= end) {
		u64 *to = (u64 *)s->front;
#pragma unroll
		for (u32 i = 0; i < FRONT / 8; i++)
			to[i] = data[i];
		return FRONT;
	}
	u32 length = bpf_xdp_get_buff_len(xdp), size = length < FRONT ? length : FRONT;
	asm volatile("" : "+r"(size)); // the verifier derives the range of the size from the mask
	size = ((size - 1) & 0xff) + 1;
	return size <= FRONT && !bpf_xdp_load_bytes(xdp, 0, s->front, size) ? size : 0;
}

// entry is an entry of one of the tables of CRC-32, which the lowest byte of at, times 4, selects.
// The assembler keeps the address in the register of the offset, where the compiler needs another.
inline u32 entry(const volatile u8 *tables, u32 table, u64 at) {
	at &= 1020;
	asm("%0 += %1" : "+r"(at) : "r"(tables));
	return *(const volatile u32 *)(at + 1024 * table);
}

// crc8 takes 8 bytes. What does not depend on the bytes before comes first.
inline u32 crc8(const volatile u8 *tables, u32 crc, u64 words) {
	u32 x = crc ^ (u32)words;
	u32 later = entry(tables, 3, words >> 30) ^ entry(tables, 2, words >> 38);
	later ^= entry(tables, 1, words >> 46) ^ entry(tables, 0, words >> 54);
	u32 low = entry(tables, 7, x << 2) ^ entry(tables, 6, x >> 6);
	asm volatile("" : "+r"(later), "+r"(low)); // the compiler would add one after the other
	u32 high = entry(tables, 5, x >> 14) ^ entry(tables, 4, x >> 22);
	asm volatile("" : "+r"(high));
	return (low ^ later) ^ high;
}

// sums are the sum of 64-bit words, without its carries, and that of their upper halves.
struct sums {
	u64 all, upper;
};

inline void sum8(struct sums *s, u64 words) {
	s->all += words;
	s->upper += words >> 32;
}

// copy copies a sketchlet to a record. It returns its check in the upper half, and the sum of its
// bytes, as checksums use it, in the lower half.
inline u64 copy(const u8 *from, const u8 *end, u8 *to, u32 size) {
	if (from + HEADER > end)
		return 0; // unreachable
	const volatile u8 *tables = (const volatile u8 *)crc_tables;
	asm volatile("" : "+r"(tables)); // one register for all
	u16 first = *(u16 *)from;
	u64 v = *(u64 *)(from + 2);
	struct sums s = {};
	sum8(&s, v);
	*(u16 *)to = first;
	*(u64 *)(to + 2) = v;
	u32 at = HEADER, crc = crc8(tables, BEFORE_CHECK, v & ~0xffffull);
	for (u32 i = 0; i < 64; i++) {
		if (at + 16 > size || from + at + 16 > end)
			break;
		v = *(u64 *)(from + at);
		u64 next = *(u64 *)(from + at + 8);
		*(u64 *)(to + at) = v;
		*(u64 *)(to + at + 8) = next;
		crc = crc8(tables, crc, v);
		crc = crc8(tables, crc, next);
		sum8(&s, v);
		sum8(&s, next);
		at += 16;
	}
	if (at + 8 <= size && from + at + 8 <= end) {
		v = *(u64 *)(from + at);
		crc = crc8(tables, crc, v);
		sum8(&s, v);
		*(u64 *)(to + at) = v;
		at += 8;
	}
	// The lower halves are what remains of the sum, which is below 2^64.
	u64 sum = first + s.upper + (s.all - (s.upper << 32));
	if (at < size && from + at + 4 <= end) {
		u32 w = *(u32 *)(from + at);
		crc = crc4(crc, w);
		sum += w;
		*(u32 *)(to + at) = w;
	}
	sum = (sum >> 32) + (u32)sum;
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return (u64)~crc << 32 | sum;
}

// update adds n to the checksum at an offset. never is as in updated.
inline void update(struct scratch *s, u32 at, u64 n, u16 never) {
	write_raw16(s, at, updated(raw16(s, at), n, never));
}

// store_front writes the first bytes of a frame, which has them: at least the headers of IPv4 and UDP.
inline bool store_front(struct xdp_md *xdp, struct scratch *s, u32 size) {
	u8 *to = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	u32 at = 0;
	for (u32 i = 0; i < FRONT / 8; i++) {
		if (at + 8 > size || to + at + 8 > end)
			break;
		*(u64 *)(to + at) = *(u64 *)(s->front + at);
		at += 8;
	}
	u32 last = size - 8;
	if (at + 8 > size && last < FRONT && to + last + 8 <= end) {
		*(u64 *)(to + last) = *(u64 *)(s->front + last);
		return true;
	}
	asm volatile("" : "+r"(size)); // the verifier derives the range of the size from the mask
	size = ((size - 1) & 0xff) + 1;
	return size <= FRONT && !bpf_xdp_store_bytes(xdp, 0, s->front, size);
}

// strip removes a sketchlet of a size and a sum, so that the packet is as its sender wrote it: the
// headers move to the front. It returns false if the frame cannot be changed.
inline bool strip(struct xdp_md *xdp, struct scratch *s, u32 size, u32 sum) {
	struct packet *p = &s->packet;
	u32 ip = p->ip, l4 = ip + p->l4, front = ip + p->payload;
	u64 shorter = bpf_htons(size), removed = sum + shorter;
	if (p->udp) {
		write_raw16(s, l4 + 4, bpf_htons(read16(s, l4 + 4) - size));
		if (raw16(s, l4 + 6)) // zero: the packet has no checksum
			update(s, l4 + 6, removed + shorter, 0);
	} else {
		write8(s, l4 + 12, read8(s, l4 + 12) & ~TCP_MARK);
		update(s, l4 + 16, removed + bpf_htons(TCP_MARK << 8), 0xffff);
	}
	if (p->v6) {
		write_raw16(s, ip + 4, bpf_htons(read16(s, ip + 4) - size));
	} else {
		u64 changed = shorter;
		if (p->udp) {
			write8(s, ip + 6, read8(s, ip + 6) & ~UDP_MARK);
			changed += bpf_htons(UDP_MARK << 8);
		}
		write_raw16(s, ip + 2, bpf_htons(read16(s, ip + 2) - size));
		update(s, ip + 10, changed, 0xffff);
	}
	return !bpf_xdp_adjust_head(xdp, size) && store_front(xdp, s, front);
}

// take removes the sketchlet behind the carry mark, if there is one, and copies it to map sketchlets
// if it has room. Only this processor writes its part of the map, and only the agent reads.
inline void take(struct xdp_md *xdp, struct scratch *s, struct counts *n, u32 group) {
	struct packet *p = &s->packet;
	asm volatile("" ::: "memory");
	const u8 *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	u32 length = end - data, at = p->ip + p->payload;
	if (p->ip + p->end > length) {
		length = bpf_xdp_get_buff_len(xdp) - p->ip;
		p->end = p->end < length ? p->end : length;
	}
	if (p->payload > p->end)
		return;
	u32 room = p->end - p->payload, words = read8(s, at + WORDS_AT), size = HEADER + 4 * words;
	if (room < HEADER || !words || size > room) {
		n->counters[SHORT]++;
		return;
	}
	u32 processor = bpf_get_smp_processor_id();
	struct ring *r = bpf_map_lookup_elem(&rings, &processor);
	u8 *lane = bpf_map_lookup_elem(&sketchlets, &processor);
	if (!r || !lane || at >= FRONT)
		return; // unreachable
	u64 written = r->written;
	u32 bytes = (sizeof(struct event) + size + 7) & ~7, last = lane_bytes + sizeof(struct record);
	s->place = written & (lane_bytes - 1);
	if (written + bytes - *(volatile u64 *)&r->read > lane_bytes)
		s->place = last;
	asm volatile("" ::: "memory");
	u32 place = s->place;
	if (place > last)
		return; // unreachable
	struct record *to = (void *)(lane + place);
	const u8 *from = data + at;
	if (from + size > end) { // in another part of the frame
		if (bpf_xdp_load_bytes(xdp, at, s->record.sketchlet, size)) {
			n->counters[UNREAD]++;
			return;
		}
		from = s->record.sketchlet;
		end = from + SKETCHLET;
	}
	u64 copied = copy(from, end, to->sketchlet, size);
	if (bpf_htonl(copied >> 32) != *(u32 *)to->sketchlet) {
		n->counters[BAD_CHECK]++;
		return;
	}
	if (!strip(xdp, s, size, (u32)copied)) {
		n->counters[UNREAD]++;
		return;
	}
	n->counters[SKETCHLETS]++;
	n->counters[IN_BAND_BYTES] += size;
	if (place == last) {
		n->counters[FULL]++;
		return;
	}
	u64 jiffies = bpf_jiffies64();
	if (r->jiffies != jiffies) {
		r->jiffies = jiffies;
		r->now = bpf_ktime_get_coarse_ns();
	}
	to->event.at = r->now;
	to->event.group = group;
	to->event.keyed = s->keyed;
	to->event.size = size;
	if (s->keyed)
		to->event.key = s->key;
	__sync_fetch_and_add(&r->written, bytes); // behind the record, for the agent
}

SEC("xdp.frags")
int receive(struct xdp_md *xdp) {
	struct control_block *c = state();
	struct scratch *s = scratch();
	if (!c || !s)
		return XDP_PASS; // unreachable
	u32 group = *(volatile u32 *)&c->active & 1;
	struct counts *n = counts_of(group);
	if (!n)
		return XDP_PASS; // unreachable
	u32 have = load_front(xdp, s);
	u16 type = 0;
	u32 ip = link(s, have, &type);
	if (!ip)
		return XDP_PASS;
	n->counters[PACKETS]++;
	s->keyed = c->limit ? count(group, type, ip, have, 0) : 0;
	struct packet *p = &s->packet;
	if (locate(s, p, type, ip, have))
		take(xdp, s, n, group);
	return XDP_PASS;
}

SEC("tc")
int send(struct __sk_buff *skb) {
	struct control_block *c = state();
	struct scratch *s = scratch();
	if (!c || !s)
		return NEXT; // unreachable
	u32 group = *(volatile u32 *)&c->active & 1;
	struct counts *n = counts_of(group);
	if (!n)
		return NEXT; // unreachable
	u32 size = skb->len < FRONT ? skb->len : FRONT;
	asm volatile("" : "+r"(size)); // the verifier derives the range of the size from the mask
	size = ((size - 1) & 0xff) + 1;
	if (size > FRONT || bpf_skb_load_bytes(skb, 0, s->front, size))
		return NEXT;
	u16 type = 0;
	u32 ip = link(s, size, &type), packets = segments(skb);
	if (!ip)
		return NEXT;
	n->counters[SENT] += packets;
	if (c->limit)
		count(group, type, ip, size, packets);
	return NEXT;
}

char _license[] SEC("license") = "Apache-2.0";

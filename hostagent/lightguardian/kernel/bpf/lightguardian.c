// SPDX-License-Identifier: Apache-2.0

// LightGuardian's host role in the kernel. It counts the same packets and sketchlets as package
// hostagent/lightguardian. Program receive removes sketchlets from packets and copies them to map
// sketchlets; programs receive and send count the packets of flows.
//
// There are two groups of counts and flows. The agent switches between them, and reads and clears
// the group that no processor uses any more. Sketchlets are removed whatever the settings are.

#define CRC_BYTES 8
#include "../../../kernel/bpf/packet.h"

enum {
	TCP_MARK = 0x08, // a bit of the byte with TCP's data offset
	UDP_MARK = 0x80, // a bit of the byte with IPv4's flags
	LONGEST = 120,   // bytes of headers from the IP header on
	SKETCHLET = 1040, // more than the longest sketchlet: 10 + 255 * 4 bytes
	WORDS_AT = 9,
	HEADER = 10,
	GROUPS = 2,
	MAX_FLOWS = 1 << 17, // flows of a group, at most
	NEXT = -1,           // TCX: the next program decides
	BEFORE_CHECK = 0x9a1c9d90, // the state of CRC-32 that two zero bytes turn into its initial state
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

// Bytes of map sketchlets for each processor, a power of two. A record that begins before their end
// may reach beyond it.
volatile const u32 lane_bytes;

// flow_counts are the packets of a flow, and for each direction the time of the newest packet and
// the longest time between two packets, in ns of a clock that advances every few milliseconds.
struct flow_counts {
	u64 sent, received;
	u64 last_sent, last_received;
	u64 sent_gap, received_gap;
};

struct counts {
	u64 counters[24];
};

// event is the begin of a record in map sketchlets. The sketchlet follows it, padded to a multiple
// of 8 bytes.
struct event {
	u64 at; // time of arrival by the kernel's monotonic clock, in ns
	u32 group;
	u16 keyed, size; // keyed is not 0 if key is set; size is the length of the sketchlet
	struct key key;  // flow of the packet, if keyed is set
};

struct record {
	struct event event;
	u8 sketchlet[SKETCHLET];
};

const struct record *named __attribute__((unused)); // the agent finds the type by this variable

// ring is the part of map sketchlets that belongs to a processor: the numbers of bytes that were
// written and that were read.
struct ring {
	u64 written, jiffies, now, unused[5], read, unused_too[7];
};

struct control_block {
	u32 active; // the group that counts
	u32 limit;  // flows in a group, at most
	u32 used[GROUPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct control_block);
} control SEC(".maps");

// Counters by processor and group.
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
} flows_0 SEC(".maps"), flows_1 SEC(".maps"); // the flows of groups 0 and 1

// sketchlets, by processor: records one behind another, room for a record that begins before the
// end, and a record for sketchlets that have no room, which nothing reads.
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

struct scratch {
	u8 headers[512]; // bytes from the IP header on; shorten reads at most this many
	struct key key;
	u32 place, keyed; // kept in memory so that the verifier follows one path for all values
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

// The mask shows the verifier that offsets into headers are below its size.
inline u16 *at16(struct scratch *s, u32 at) { return (u16 *)(s->headers + (at & 127)); }

// room_for reserves room for a flow. It returns false if the group is full.
inline bool room_for(struct control_block *c, u32 group) {
	u32 *used = &c->used[group], limit = c->limit < MAX_FLOWS ? c->limit : MAX_FLOWS;
	if (__sync_fetch_and_add(used, 1) < limit)
		return true;
	__sync_fetch_and_add(used, -1);
	return false;
}

// flow_of returns the counts of a flow, or null if there is no room for it.
inline struct flow_counts *flow_of(struct control_block *c, struct flow_table *flows, u32 group, const struct key *k) {
	struct flow_counts none = {}, *f = bpf_map_lookup_elem(flows, k);
	if (f || !room_for(c, group))
		return f;
	if (bpf_map_update_elem(flows, k, &none, BPF_NOEXIST))
		__sync_fetch_and_add(&c->used[group], -1); // another processor added it, or there is no memory
	return bpf_map_lookup_elem(flows, k);
}

// count adds sent or received packets to the flow of the packet. It returns 1 if the flow has room.
part int count(u32 group, u32 packets, u32 sent) {
	struct control_block *c = state();
	struct scratch *s = scratch();
	struct counts *n = counts_of(group);
	if (!c || !s || !n)
		return 0; // unreachable
	struct flow_counts *f = group ? flow_of(c, &flows_1, 1, &s->key) : flow_of(c, &flows_0, 0, &s->key);
	if (!f) {
		n->counters[FLOWS_FULL] += packets;
		return 0;
	}
	__sync_fetch_and_add(sent ? &f->sent : &f->received, packets);
	// Two processors rarely have packets of one flow at the same time. If they do, only one of the
	// two measures the gap.
	u64 now = bpf_ktime_get_coarse_ns(), *last = sent ? &f->last_sent : &f->last_received;
	u64 *longest = sent ? &f->sent_gap : &f->received_gap, gap = *last ? now - *last : 0;
	*last = now;
	if ((s64)gap > (s64)*longest)
		*longest = gap;
	return 1;
}

// skip_option calls skip_mark. All bytes that it reads are in one piece of memory then.
inline void skip_option(struct __sk_buff *skb, u32 ip, struct key *k) {
	enum { LONGEST = 14 + 2 * 4 + 40 + 40 + 8 + 8 }; // with a fragment header and ports
	if (!k->v6 || k->proto != DESTINATIONS)
		return;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u32 want = skb->len < LONGEST ? skb->len : LONGEST;
	if (data + LONGEST > end) {
		if (bpf_skb_pull_data(skb, want))
			return;
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
	}
	skip_mark(data + (ip & 31), end, k);
}

// read counts a packet as the segments that it is on the wire, and returns whether it is IP.
inline bool read(struct __sk_buff *skb, struct scratch *s, struct counts *n, struct headers *h, u32 group, bool sent,
		 u32 limit) {
	u32 result = parse(skb, h), packets = segments(skb);
	s->keyed = 0;
	if (!h->ip || result == PARSE_NOT_IP)
		return false;
	n->counters[sent ? SENT : PACKETS] += packets;
	if (result != PARSED || !is_whole(h)) {
		if (limit)
			n->counters[NO_FLOW] += packets;
	} else if (limit) {
		s->key = h->key;
		skip_option(skb, h->ip, &s->key);
		s->keyed = count(group, packets, sent);
	}
	return result == PARSED;
}

// is_marked returns whether a packet has the carry mark.
inline bool is_marked(const struct headers *h) {
	if (h->fragment)
		return false;
	if (h->tcp)
		return h->offset & TCP_MARK && h->offset >= 5 << 4;
	return h->key.proto == UDP && h->reserved_ip;
}

// entry returns an entry of a table of CRC-32, which bits 2 to 9 of at select. The assembler keeps
// the address in the register of the offset, where the compiler would need another register.
inline u32 entry(const volatile u8 *tables, u32 table, u64 at) {
	at &= 1020;
	asm("%0 += %1" : "+r"(at) : "r"(tables));
	return *(const volatile u32 *)(at + 1024 * table);
}

// crc8 adds 8 bytes to the state of CRC-32. The lookups that do not depend on the state come first.
inline u32 crc8(const volatile u8 *tables, u32 crc, u64 words) {
	u32 x = crc ^ (u32)words;
	u32 later = entry(tables, 3, words >> 30) ^ entry(tables, 2, words >> 38);
	later ^= entry(tables, 1, words >> 46) ^ entry(tables, 0, words >> 54);
	u32 low = entry(tables, 7, x << 2) ^ entry(tables, 6, x >> 6);
	asm volatile("" : "+r"(later), "+r"(low)); // otherwise the compiler adds them one by one
	u32 high = entry(tables, 5, x >> 14) ^ entry(tables, 4, x >> 22);
	asm volatile("" : "+r"(high));
	return (low ^ later) ^ high;
}

// sums are two running sums over 64-bit words: of the words without carries, and of their upper
// halves.
struct sums {
	u64 all, upper;
};

inline void sum8(struct sums *s, u64 words) {
	s->all += words;
	s->upper += words >> 32;
}

// check_of returns the check of a sketchlet in the upper half, and the sum of its bytes as
// checksums use it in the lower half.
inline u64 check_of(const u8 *from, u32 size) {
	const volatile u8 *tables = (const volatile u8 *)crc_tables;
	asm volatile("" : "+r"(tables)); // the tables stay in one register
	u16 first = *(u16 *)from;
	u64 v = *(u64 *)(from + 2);
	struct sums s = {};
	sum8(&s, v);
	u32 at = HEADER, crc = crc8(tables, BEFORE_CHECK, v & ~0xffffull);
	for (u32 i = 0; i < 64; i++) {
		if (at + 16 > size)
			break;
		v = *(u64 *)(from + at);
		u64 next = *(u64 *)(from + at + 8);
		crc = crc8(tables, crc, v);
		crc = crc8(tables, crc, next);
		sum8(&s, v);
		sum8(&s, next);
		at += 16;
	}
	if (at + 8 <= size) {
		v = *(u64 *)(from + at);
		crc = crc8(tables, crc, v);
		sum8(&s, v);
		at += 8;
	}
	// The rest of the sum, which is below 2^64, comes from the lower halves.
	u64 sum = first + s.upper + (s.all - (s.upper << 32));
	if (at < size) {
		u32 w = *(u32 *)(from + at);
		crc = crc4(crc, w);
		sum += w;
	}
	sum = (sum >> 32) + (u32)sum;
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return (u64)~crc << 32 | sum;
}

// update adds n to the checksum at an offset. never has the meaning that it has in updated.
inline void update(struct scratch *s, u32 at, u64 n, u16 never) { *at16(s, at) = updated(*at16(s, at), n, never); }

inline void subtract(struct scratch *s, u32 at, u16 n) { *at16(s, at) = bpf_htons(bpf_ntohs(*at16(s, at)) - n); }

// strip removes a sketchlet, whose size and sum are given, and restores the packet that its sender
// wrote. It returns false if the packet cannot be changed.
inline bool strip(struct __sk_buff *skb, struct scratch *s, const struct headers *h, u32 size, u32 sum) {
	u32 l4 = h->l4;
	u64 shorter = bpf_htons(size), removed = sum + shorter;
	if (h->tcp) {
		s->headers[(l4 + 12) & 127] &= ~TCP_MARK;
		update(s, l4 + 16, removed + bpf_htons(TCP_MARK << 8), 0xffff);
	} else {
		subtract(s, l4 + 4, size);
		if (*at16(s, l4 + 6)) // zero: the packet has no checksum
			update(s, l4 + 6, removed + shorter, 0);
	}
	if (h->key.v6) {
		subtract(s, 4, size);
	} else {
		u64 changed = shorter;
		if (!h->tcp) {
			s->headers[6] &= ~UDP_MARK;
			changed += bpf_htons(UDP_MARK << 8);
		}
		subtract(s, 2, size);
		update(s, 10, changed, 0xffff);
	}
	return shorten(skb, s->headers, h->payload, size);
}

// take removes the sketchlet behind the carry mark, if there is one, and copies it to map
// sketchlets if it has room. A processor writes only its own part of the map, and the agent only
// reads.
inline void take(struct __sk_buff *skb, struct scratch *s, const struct headers *h, struct counts *n, u32 group) {
	u32 rest = skb->len - h->ip, end = h->length < rest ? h->length : rest, count = h->payload;
	if (count > end)
		return;
	u8 words = 0;
	u32 room = end - count, at = h->ip + count;
	if (room >= HEADER)
		bpf_skb_load_bytes(skb, at + WORDS_AT, &words, 1);
	u32 size = HEADER + 4 * words;
	if (!words || size > room) {
		n->counters[SHORT]++;
		return;
	}
	u32 processor = bpf_get_smp_processor_id();
	struct ring *r = bpf_map_lookup_elem(&rings, &processor);
	u8 *lane = bpf_map_lookup_elem(&sketchlets, &processor);
	if (!r || !lane)
		return; // unreachable
	u64 written = r->written;
	u32 bytes = (sizeof(struct event) + size + 7) & ~7, last = lane_bytes + sizeof(struct record);
	s->place = written & (lane_bytes - 1);
	if (written + bytes - *(volatile u64 *)&r->read > lane_bytes)
		s->place = last;
	asm volatile("" ::: "memory");
	u32 place = s->place;
	asm volatile("" : "+r"(size), "+r"(count)); // the verifier derives ranges from these comparisons
	if (place > last || size > SKETCHLET || size < HEADER || count > LONGEST || !count)
		return; // unreachable
	struct record *to = (void *)(lane + place);
	// The kernel never merges packets with sketchlets, because their lengths do not match their
	// sequence numbers.
	if (skb->gso_size || bpf_skb_load_bytes(skb, at, to->sketchlet, size) ||
	    bpf_skb_load_bytes(skb, h->ip, s->headers, count)) {
		n->counters[UNREAD]++;
		return;
	}
	u64 check = check_of(to->sketchlet, size);
	if (bpf_htonl(check >> 32) != *(u32 *)to->sketchlet) {
		n->counters[BAD_CHECK]++;
		return;
	}
	if (!strip(skb, s, h, size, (u32)check)) {
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
	__sync_fetch_and_add(&r->written, bytes); // last, because the agent reads what was written
}

inline int pass(struct __sk_buff *skb, bool sent) {
	struct control_block *c = state();
	struct scratch *s = scratch();
	if (!c || !s)
		return NEXT; // unreachable
	u32 group = *(volatile u32 *)&c->active & 1;
	struct counts *n = counts_of(group);
	struct headers h;
	if (n && read(skb, s, n, &h, group, sent, c->limit) && !sent && is_marked(&h))
		take(skb, s, &h, n, group);
	return NEXT;
}

SEC("tc")
int receive(struct __sk_buff *skb) { return pass(skb, false); }

SEC("tc")
int send(struct __sk_buff *skb) { return pass(skb, true); }

char _license[] SEC("license") = "Apache-2.0";

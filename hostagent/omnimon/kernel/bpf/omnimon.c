// SPDX-License-Identifier: Apache-2.0

// OmniMon's host role in the kernel: the same packets, bytes and counts as package
// hostagent/omnimon. Program egress runs at TCX or clsact, ingress at XDP, because only XDP can
// remove bytes behind an EtherType that the kernel does not know.
//
// All arrays but the counters are shared by the processors. A packet changes its slot, and its
// entry in the flow table, under a spin lock that the flow's number selects. A cell of an epoch has
// the number of its epoch; the first packet of a later epoch that uses the same cell clears it. So
// nothing has to be cleared when an epoch begins, and counting goes on without the agent.

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define inline __attribute__((always_inline)) static __inline__

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;

enum { PASS = -1, SHOT = 2 }; // TCX_NEXT and TCX_DROP, TC_ACT_UNSPEC and TC_ACT_SHOT

enum {
	ETH_IPV4 = 0x0800,
	ETH_IPV6 = 0x86dd,
	ETH_VLAN = 0x8100,
	ETH_QINQ = 0x88a8,
	ETH_QINQ_OLD = 0x9100,
	TCP = 6,
	UDP = 17,
	FRAGMENT = 44,
	FIN = 1,
	SYN = 2,
	RST = 4,
	PSH = 8,
	ACK = 16,
	HEADERS = 128, // no header that the programs read ends beyond it
	MACS = 12,
	WINDOW = 4, // epochs that packets may belong to, and the largest distance to a newer one
	PAGE = 64,  // slots of incoming flows
	LOCKS = 4096,
	MAX_GENERATIONS = 32,
	MAX_EXTREMES = 4,
	MAX_HEADER = 32,
	CHUNK = 64,
};

// Counters, as in package wire.
enum {
	NOT_IP,
	FOREIGN,
	NO_HEADER,
	MALFORMED,
	DROPPED,
	UNTRACKED,
	LATE,
	UNKNOWN_EPOCH,
	UNKNOWN_HOST,
	BAD_INDEX,
	FORGED,
	INGRESS_FULL,
	RESTARTED,
	COUNTERS,
	COUNTED = COUNTERS,
};

enum { FIELD_LENGTH, FIELD_TTL, FIELD_WINDOW };

// States of an entry.
enum { UNUSED, ACTIVE, ENDED, REOPENED, RETURNED };

// Settings, constant while a program is loaded.
volatile const u16 ether_type;
volatile const u16 own_host;
volatile const u32 slots_per_flow;
volatile const u32 extremes;
volatile const u8 fields[MAX_EXTREMES];
volatile const u8 minima[MAX_EXTREMES];
volatile const u32 flow_limit;
volatile const u32 mapping_limit;  // mappings that flows may have
volatile const u32 page_limit;     // pages of incoming flows in an epoch
volatile const u32 pages_per_host; // of the directory
volatile const u32 host_limit;
volatile const u32 generations;    // epochs that the arrays hold, a power of two
volatile const u32 max_length;     // of an IP packet with a header, in bytes

struct flow_key {
	u8 src[16], dst[16];
	u16 sport, dport;
	u8 proto, v6;
	u16 zero;
};

struct flow_entry {
	u16 slots[4];
	u64 first, last; // epochs
	u32 mapping, state;
	struct flow_key key;
	u64 unused[3]; // the first 32 bytes lie in one cache line
};

struct flow_slot {
	u64 epoch, bytes;
	u32 packets, syn, fin_rst, syn_ack, ack, bare, matched, check;
	s32 extremes[MAX_EXTREMES];
	u64 unused;
};

struct lock {
	struct bpf_spin_lock lock;
	u32 unused[15];
};

struct counts {
	u64 epoch;
	u64 n[COUNTERS];
};

struct address {
	u8 bytes[16];
	u32 v6;
};

// began is a flow that has an entry since the agent looked last.
struct began {
	u32 index, mapping;
};

struct control_block {
	u64 epoch, base; // base: epoch in which the table began
	// The kernel's own clock, for the time without an agent, in nanoseconds of CLOCK_MONOTONIC: epoch
	// zero begins at start, and nothing happens before deadline. A length of 0: no clock.
	u64 deadline, length, start, zero;
	u32 match; // length of the string to find, 0: none
	u32 unused[3];
	u64 sealed[MAX_GENERATIONS];   // epoch plus one
	u64 released[MAX_GENERATIONS]; // epoch plus one
	u64 pages[MAX_GENERATIONS];    // epoch in the upper half, count in the lower
	u32 fresh_index, fresh_mapping;
	u64 shared; // upper bit: half of the map shared; rest: count of mappings that were taken
	u64 unused2[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct control_block);
} control SEC(".maps");

// flows finds the index of a flow by its key.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key);
	__type(value, u32);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct flow_entry);
} entries SEC(".maps");

// egress: slots of outgoing flows, by generation and index.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct flow_slot);
} outgoing SEC(".maps");

// ingress: slots of incoming flows, by generation, page and index modulo the size of a page.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct flow_slot);
} incoming SEC(".maps");

// directory: the page of 64 host indexes of a source host, by generation, host and index. Epoch in
// the upper half, page plus one in the lower.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} directory SEC(".maps");

// owners: the cell of the directory, without its generation, that a page belongs to.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} owners SEC(".maps");

// The last lock protects the directory.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOCKS + 1);
	__type(key, u32);
	__type(value, struct lock);
} locks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_GENERATIONS);
	__type(key, u32);
	__type(value, struct counts);
} counters SEC(".maps");

// hosts: the number of a host by an address.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, u32);
} hosts SEC(".maps");

// Indexes that were used and are free, the latest first; then those from control.fresh_index on.
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1);
	__type(value, u32);
} free_indexes SEC(".maps");

// Mappings from control.fresh_mapping on, then those that were used and have no flow, the earliest
// first; then those in map shared, the earliest assignment first.
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_mappings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} shared SEC(".maps");

// mappings: the slots of each mapping.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} mappings SEC(".maps");

// begun and endings: what the agent has to know of flows. An index is in each at most once.
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, struct began);
} begun SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} endings SEC(".maps");

// automaton finds the string: next state by state and byte. State control.match is final.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u8[1 << 16]);
} automaton SEC(".maps");

// packet is what the programs use of a frame.
struct packet {
	struct flow_key key;
	u32 link;    // length of the link layer, with the EtherType
	u32 payload; // offset of the data after TCP, UDP or IP, in the frame
	u32 length, headers; // of the IP packet; of IP and transport
	u16 type, window;
	u8 ttl, flags;
	bool tcp;
};

inline struct control_block *state(void) {
	u32 zero = 0;
	return bpf_map_lookup_elem(&control, &zero);
}

inline void count(u64 epoch, u32 why) {
	u32 g = epoch & (generations - 1);
	struct counts *c = bpf_map_lookup_elem(&counters, &g);
	if (!c)
		return;
	if (c->epoch != epoch) {
		__builtin_memset(c->n, 0, sizeof(c->n));
		c->epoch = epoch;
	}
	if (why < COUNTERS)
		c->n[why]++;
}

inline void advance(struct control_block *c, u64 epoch) {
	u64 old = *(volatile u64 *)&c->epoch;
	for (int i = 0; i < 8 && epoch > old; i++) {
		u64 found = __sync_val_compare_and_swap(&c->epoch, old, epoch);
		if (found == old)
			break;
		old = found;
	}
}

// tick returns the current epoch. Without an agent it advances by the kernel's clock.
inline u64 tick(struct control_block *c) {
	u64 length = c->length;
	if (length) {
		u64 now = bpf_ktime_get_coarse_ns(), start = c->start;
		if (now >= c->deadline && now >= start) {
			u64 n = (now - start) / length;
			c->deadline = start + (n + 1) * length;
			advance(c, c->zero + n);
		}
	}
	return *(volatile u64 *)&c->epoch;
}

inline u16 load16(const void *p) {
	return (u16)((const u8 *)p)[0] << 8 | ((const u8 *)p)[1];
}

// parse_link parses the MAC addresses and at most two VLAN tags. It returns false if the frame is
// truncated.
inline bool parse_link(void *data, void *end, struct packet *p) {
	u32 at = MACS;
	if (data + at + 2 > end)
		return false;
	u16 type = load16(data + at);
	if (type == ETH_VLAN || type == ETH_QINQ || type == ETH_QINQ_OLD) {
		at += 4;
		if (data + at + 2 > end)
			return false;
		type = load16(data + at);
		if (type == ETH_VLAN || type == ETH_QINQ || type == ETH_QINQ_OLD) {
			at += 4;
			if (data + at + 2 > end)
				return false;
			type = load16(data + at);
		}
	}
	p->type = type;
	p->link = at + 2;
	return true;
}

// parse_ip parses the IP packet of an EtherType behind the link layer.
inline u32 parse_ip(void *data, void *end, u16 type, struct packet *p) {
	u32 at = p->link, size;
	bool later = false;
	u8 *b = data + (at & 31);
	p->tcp = false;
	p->flags = 0;
	p->window = 0;
	__builtin_memset(&p->key, 0, sizeof(p->key));
	if (type == ETH_IPV4) {
		if ((void *)b + 20 > end || b[0] >> 4 != 4)
			return MALFORMED;
		size = (b[0] & 15) * 4;
		p->length = load16(b + 2);
		if (size < 20 || (void *)b + size > end || p->length < size)
			return MALFORMED;
		p->key.proto = b[9];
		__builtin_memcpy(p->key.src, b + 12, 4);
		__builtin_memcpy(p->key.dst, b + 16, 4);
		p->ttl = b[8];
		later = load16(b + 6) & 0x1fff;
	} else if (type == ETH_IPV6) {
		if ((void *)b + 40 > end || b[0] >> 4 != 6)
			return MALFORMED;
		size = 40;
		p->length = 40 + load16(b + 4);
		p->key.v6 = 1;
		p->key.proto = b[6];
		__builtin_memcpy(p->key.src, b + 8, 16);
		__builtin_memcpy(p->key.dst, b + 24, 16);
		p->ttl = b[7];
		if (b[6] == FRAGMENT) {
			if ((void *)b + 48 > end)
				return MALFORMED;
			p->key.proto = b[40];
			later = load16(b + 42) & 0xfff8;
			size = 48;
		}
	} else {
		return NOT_IP;
	}
	at += size;
	p->payload = at;
	p->headers = size;
	if (later || (p->key.proto != TCP && p->key.proto != UDP))
		return COUNTED;
	b = data + (at & 127);
	if (p->key.proto == UDP) {
		if ((void *)b + 8 > end)
			return MALFORMED;
		size = 8;
	} else {
		if ((void *)b + 20 > end)
			return MALFORMED;
		size = (b[12] >> 4) * 4;
		if (size < 20)
			size = 20;
		p->tcp = true;
		p->flags = b[13];
		p->window = load16(b + 14);
	}
	p->key.sport = load16(b);
	p->key.dport = load16(b + 2);
	p->payload += size;
	p->headers += size;
	return COUNTED;
}

inline u64 step(u64 h, u64 word) {
	h = (h ^ word) * 0x9e3779b97f4a7c15;
	return h ^ h >> 32;
}

// check_value is wire.Check.
inline u32 check_value(const struct flow_key *k) {
	const u64 *src = (const u64 *)k->src, *dst = (const u64 *)k->dst;
	u64 h = step(step(0, src[0]), dst[0]);
	if (k->v6)
		h = step(step(h, src[1]), dst[1]);
	return step(h, (u64)k->sport << 32 | (u64)k->dport << 16 | k->proto);
}

inline u32 *find_host(const u8 *bytes, u8 v6) {
	struct address a = { .v6 = v6 };
	__builtin_memcpy(a.bytes, bytes, 16);
	return bpf_map_lookup_elem(&hosts, &a);
}

inline struct lock *lock_of(u32 n) {
	n %= LOCKS;
	return bpf_map_lookup_elem(&locks, &n);
}

// renew clears a slot of an older epoch.
inline void renew(struct flow_slot *s, u64 epoch) {
	if (s->epoch != epoch) {
		__builtin_memset(s, 0, sizeof(*s));
		s->epoch = epoch;
	}
}

inline void add_flags(struct flow_slot *s, const struct packet *p, u8 flags, u32 n) {
	if ((flags & (SYN | ACK)) == SYN)
		s->syn += n;
	else if ((flags & (SYN | ACK)) == (SYN | ACK))
		s->syn_ack += n;
	else if ((flags & (FIN | RST | ACK)) == ACK)
		s->ack += n;
	if (flags & (FIN | RST))
		s->fin_rst += n;
}

// add counts a packet, or the segments of one that will be segmented: all have its flags, but FIN
// belongs to the last.
inline void add(struct flow_slot *s, const struct packet *p, u32 segments, bool matched) {
	s->packets += segments;
	s->bytes += p->length + (u64)(segments - 1) * p->headers;
	if (p->tcp) {
		add_flags(s, p, p->flags, 1);
		if (segments > 1)
			add_flags(s, p, p->flags & ~(FIN | PSH), segments - 1);
		if (segments == 1 && p->length == (p->key.v6 ? 60 : 40))
			s->bare++;
	}
	s->matched += matched;
}

inline s32 field(u32 i, const struct packet *p) {
	switch (fields[i]) {
	case FIELD_LENGTH:
		return p->length;
	case FIELD_TTL:
		return p->ttl;
	}
	return p->window;
}

// search is the state of a search for the string in the payload of a frame.
struct search {
	void *context;
	u32 at, end, final;
	u8 state;
};

// search_chunk searches the next bytes, which load copies. It returns true at the end.
inline bool search_chunk(struct search *s, long (*load)(void *, u32, void *, u32)) {
	u8 chunk[CHUNK] = {};
	u32 zero = 0;
	u8 *next = bpf_map_lookup_elem(&automaton, &zero);
	if (!next || s->at >= s->end)
		return true;
	u32 last = s->end - s->at - 1; // byte of the chunk
	if (last >= CHUNK)
		last = CHUNK - 1;
	asm volatile("" : "+r"(last)); // the verifier derives the range of the size from the mask
	u32 size = (last & (CHUNK - 1)) + 1;
	if (load(s->context, s->at, chunk, size))
		return true;
	u8 state = s->state;
	for (u32 i = 0; i < CHUNK && i < size; i++)
		state = next[(u32)state << 8 | chunk[i]];
	s->state = state;
	s->at += size;
	return state == s->final;
}

inline long load_skb(void *skb, u32 at, void *to, u32 n) { return bpf_skb_load_bytes(skb, at, to, n); }
inline long load_xdp(void *xdp, u32 at, void *to, u32 n) { return bpf_xdp_load_bytes(xdp, at, to, n); }
static long search_skb(u32 n, struct search *s) { return search_chunk(s, load_skb); }
static long search_xdp(u32 n, struct search *s) { return search_chunk(s, load_xdp); }

// contains reports whether the bytes from at to end of a frame contain the string of a length.
inline bool contains(void *context, long (*callback)(u32, struct search *), u32 at, u32 end, u32 length) {
	struct search s = { .context = context, .at = at, .end = end, .final = length };
	if (!length || at >= end)
		return false;
	bpf_loop((end - at + CHUNK - 1) / CHUNK, callback, &s, 0);
	return s.state == length;
}

// take_mapping assigns a mapping to a new flow.
inline u32 take_mapping(struct control_block *c) {
	u32 n;
	if (*(volatile u32 *)&c->fresh_mapping < mapping_limit) {
		n = __sync_fetch_and_add(&c->fresh_mapping, 1);
		if (n < mapping_limit)
			return n;
	}
	if (!bpf_map_pop_elem(&free_mappings, &n))
		return n;
	u64 taken = __sync_fetch_and_add(&c->shared, 1);
	u32 at = (taken & 0xffffffff) % mapping_limit;
	if (taken >> 63)
		at += mapping_limit;
	u64 *number = bpf_map_lookup_elem(&shared, &at);
	return number ? *number : 0;
}

// begin adds a flow and returns COUNTED, or why it is not tracked.
inline u32 begin(struct control_block *c, struct packet *p, u64 now, u32 *index) {
	u32 *host = find_host(p->key.src, p->key.v6);
	if (!host || *host != own_host || !find_host(p->key.dst, p->key.v6))
		return FOREIGN;
	if (bpf_map_pop_elem(&free_indexes, index)) {
		if (*(volatile u32 *)&c->fresh_index >= flow_limit)
			return UNTRACKED;
		*index = __sync_fetch_and_add(&c->fresh_index, 1);
		if (*index >= flow_limit)
			return UNTRACKED;
	}
	struct flow_entry *e = bpf_map_lookup_elem(&entries, index);
	if (!e)
		return UNTRACKED;
	struct began b = { .index = *index, .mapping = take_mapping(c) };
	u64 *slots = bpf_map_lookup_elem(&mappings, &b.mapping);
	if (slots)
		__builtin_memcpy(e->slots, slots, 8);
	e->first = e->last = now;
	e->mapping = b.mapping;
	e->key = p->key;
	e->state = ACTIVE;
	if (bpf_map_update_elem(&flows, &p->key, index, BPF_NOEXIST)) {
		// Another processor added the flow. The agent gives index and mapping back.
		e->state = RETURNED;
		bpf_map_push_elem(&begun, &b, 0);
		u32 *found = bpf_map_lookup_elem(&flows, &p->key);
		if (!found)
			return UNTRACKED;
		*index = *found;
		return COUNTED;
	}
	bpf_map_push_elem(&begun, &b, 0);
	return COUNTED;
}

inline u32 header_size(void) { return 8 + 2 * slots_per_flow + 4 * extremes; }

// put_link writes the link layer, with tags and the EtherType type, to the front of a frame.
inline bool put_link(void *data, void *end, u32 link, const u16 *old, u16 type) {
	u16 *to = data;
	if (data + 14 > end)
		return false;
	for (u32 i = 0; i < 6; i++)
		to[i] = old[i];
	if (link == 14) {
		to[6] = bpf_htons(type);
		return true;
	}
	if (data + 18 > end)
		return false;
	to[6] = old[6];
	to[7] = old[7];
	if (link == 18) {
		to[8] = bpf_htons(type);
		return true;
	}
	if (data + 22 > end)
		return false;
	to[8] = old[8];
	to[9] = old[9];
	to[10] = bpf_htons(type);
	return true;
}

SEC("tc")
int egress(struct __sk_buff *skb) {
	struct control_block *c = state();
	struct packet p = {};
	if (!c)
		return PASS;
	u64 now = tick(c);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u32 linear = skb->len < HEADERS ? skb->len : HEADERS;
	if (data + linear > end) {
		bpf_skb_pull_data(skb, linear);
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
	}
	u32 why = MALFORMED;
	if (parse_link(data, end, &p))
		why = parse_ip(data, end, p.type, &p);
	if (why != COUNTED) {
		count(now, why);
		return PASS;
	}
	u32 index, *found = bpf_map_lookup_elem(&flows, &p.key);
	if (found) {
		index = *found;
	} else {
		why = begin(c, &p, now, &index);
		if (why != COUNTED) {
			count(now, why);
			return PASS;
		}
	}
	u32 segments = 1, longest = p.length, size = header_size();
	if (skb->gso_size && p.length > p.headers) {
		segments = (p.length - p.headers + skb->gso_size - 1) / skb->gso_size;
		longest = p.headers + skb->gso_size;
	}
	// Differences and the string are of one packet, so they need packets that are not segmented later.
	if (longest > max_length || (segments > 1 && (extremes || c->match)) ||
	    bpf_skb_change_head(skb, size, 0)) {
		count(now, UNTRACKED);
		return PASS;
	}
	bool matched = contains(skb, search_skb, p.payload + size, skb->len, c->match);

	struct flow_entry *e = bpf_map_lookup_elem(&entries, &index);
	u32 at = (u32)(now & (generations - 1)) * flow_limit + index;
	struct flow_slot *s = bpf_map_lookup_elem(&outgoing, &at);
	struct lock *l = lock_of(index);
	u16 h[MAX_HEADER / 2] = {};
	u16 old[10];
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (!e || !s || !l || data + size + 24 > end)
				return SHOT; // unreachable: the frame has an IP header
	bool ending = false;
	bpf_spin_lock(&l->lock);
	renew(s, now);
	if (now > e->last)
		e->last = now;
	u32 first = !s->packets;
	for (u32 i = 0; i < MAX_EXTREMES; i++) {
		if (i >= extremes)
			break;
		s32 value = field(i, &p), before = s->extremes[i], difference = 0;
		if (first)
			difference = value;
		else if (minima[i] ? value < before : value > before)
			difference = value - before;
		if (first || difference)
			s->extremes[i] = value;
		h[3 + slots_per_flow + 2 * i & 15] = bpf_htons((u32)difference >> 16);
		h[4 + slots_per_flow + 2 * i & 15] = bpf_htons((u32)difference);
	}
	add(s, &p, segments, matched);
	if (p.flags & (FIN | RST)) {
		ending = e->state == ACTIVE;
		e->state = ENDED;
	} else if (p.flags & SYN && e->state == ENDED) {
		e->state = REOPENED;
	}
	u64 slots = *(u64 *)e->slots;
	bpf_spin_unlock(&l->lock);
	if (ending)
		bpf_map_push_elem(&endings, &index, 0);

	h[0] = bpf_htons(now);
	h[1] = bpf_htons(index >> 8);
	h[2] = bpf_htons(index << 8);
	for (u32 i = 0; i < 4; i++) {
		if (i < slots_per_flow)
			h[3 + i] = bpf_htons(slots >> 16 * i);
	}
	h[(size / 2 - 1) & 15] = bpf_htons(p.type);
	for (u32 i = 0; i < 10; i++)
		old[i] = ((u16 *)(data + size))[i];
	if (!put_link(data, end, p.link, old, ether_type))
		return SHOT; // unreachable
	void *to = data + (p.link & 31);
	if (to + size > end)
		return SHOT; // unreachable
	for (u32 i = 0; i < MAX_HEADER / 2; i++) {
		if (2 * i < size)
			((u16 *)to)[i] = h[i];
	}
	return PASS;
}

// page_of returns the number of the page of incoming flows, from 1, that belongs to a cell of the
// directory, or 0 if the epoch has no page left.
inline u32 page_of(struct control_block *c, u64 epoch, u32 cell) {
	u32 g = epoch & (generations - 1);
	u32 at = g * host_limit * pages_per_host + cell;
	u64 *d = bpf_map_lookup_elem(&directory, &at);
	if (!d)
		return 0;
	u64 value = *(volatile u64 *)d, tag = epoch << 32;
	if (value >> 32 == (u32)epoch && (u32)value)
		return value;
	u32 n = LOCKS;
	struct lock *l = bpf_map_lookup_elem(&locks, &n);
	if (!l)
		return 0;
	u64 *pages = &c->pages[g & (MAX_GENERATIONS - 1)];
	bool fresh = false;
	n = 0;
	bpf_spin_lock(&l->lock);
	value = *d;
	if (value >> 32 == (u32)epoch && (u32)value) {
		n = value;
	} else {
		u64 used = *pages;
		if (used >> 32 != (u32)epoch)
			used = tag;
		if ((u32)used < page_limit) {
			n = (u32)++used;
			*pages = used;
			*d = tag | n;
			fresh = true;
		}
	}
	bpf_spin_unlock(&l->lock);
	if (fresh) {
		at = g * page_limit + n - 1;
		u64 *owner = bpf_map_lookup_elem(&owners, &at);
		if (owner)
			*owner = cell;
	}
	return n;
}

// receive counts an incoming packet without its header h, or returns why it does not, and the
// epoch to which that belongs.
inline u32 receive(struct control_block *c, struct xdp_md *xdp, struct packet *p, const u16 *h, u64 now, u64 *epoch) {
	s32 distance = (s16)(bpf_ntohs(h[0]) - (u16)now);
	*epoch = now;
	if (distance > WINDOW || distance < -WINDOW)
		return UNKNOWN_EPOCH;
	u64 e = now + distance;
	if (distance > 0)
		advance(c, e);
	if (distance <= -WINDOW || e < c->base || e > now + WINDOW ||
	    c->sealed[e & (generations - 1) & (MAX_GENERATIONS - 1)] == e + 1)
		return LATE;
	*epoch = e;
	u32 index = (u32)bpf_ntohs(h[1]) << 8 | bpf_ntohs(h[2]) >> 8;
	u32 *host = find_host(p->key.src, p->key.v6);
	if (!host)
		return UNKNOWN_HOST;
	if (index >= flow_limit)
		return BAD_INDEX;
	u32 page = page_of(c, e, *host * pages_per_host + index / PAGE);
	if (!page)
		return INGRESS_FULL;
	u32 at = ((u32)(e & (generations - 1)) * page_limit + page - 1) * PAGE + index % PAGE;
	struct flow_slot *s = bpf_map_lookup_elem(&incoming, &at);
	struct lock *l = lock_of(at);
	if (!s || !l)
		return INGRESS_FULL;
	bool matched = false;
	if (c->match)
		matched = contains(xdp, search_xdp, p->payload, bpf_xdp_get_buff_len(xdp), c->match);
	u32 check = check_value(&p->key);
	bool forged = false;
	bpf_spin_lock(&l->lock);
	renew(s, e);
	if (!s->packets)
		s->check = check;
	forged = s->check != check;
	if (!forged) {
		for (u32 i = 0; i < MAX_EXTREMES; i++) {
			if (i >= extremes)
				break;
			s->extremes[i] += (u32)bpf_ntohs(h[(3 + slots_per_flow + 2 * i) & 15]) << 16 |
					  bpf_ntohs(h[(4 + slots_per_flow + 2 * i) & 15]);
		}
		add(s, p, 1, matched);
	}
	bpf_spin_unlock(&l->lock);
	return forged ? FORGED : COUNTED;
}

SEC("xdp.frags")
int ingress(struct xdp_md *xdp) {
	struct control_block *c = state();
	struct packet p = {};
	u16 h[MAX_HEADER / 2] = {}, old[10] = {};
	if (!c)
		return XDP_PASS;
	u64 now = tick(c);
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	if (!parse_link(data, end, &p)) {
		count(now, MALFORMED);
		return XDP_PASS;
	}
	if (p.type != ether_type) {
		if (p.type == ETH_IPV4 || p.type == ETH_IPV6)
			count(now, NO_HEADER);
		return XDP_PASS;
	}
	u32 size = header_size();
	void *from = data + (p.link & 31);
	if (from + size > end) {
		count(now, MALFORMED);
		return XDP_PASS;
	}
	for (u32 i = 0; i < MAX_HEADER / 2; i++) {
		if (2 * i < size)
			h[i] = ((u16 *)from)[i];
	}
	u16 next = bpf_ntohs(h[(size / 2 - 1) & 15]);
	for (u32 i = 0; i < 10; i++) {
		if (i < p.link / 2 - 1)
			old[i] = ((u16 *)data)[i];
	}
	if (bpf_xdp_adjust_head(xdp, size)) {
		count(now, MALFORMED); // unreachable: the frame has more bytes
		return XDP_PASS;
	}
	data = (void *)(long)xdp->data;
	end = (void *)(long)xdp->data_end;
	if (!put_link(data, end, p.link, old, next))
		return XDP_DROP; // unreachable
	if (parse_ip(data, end, next, &p) != COUNTED) {
		count(now, MALFORMED);
		return XDP_PASS;
	}
	u64 epoch;
	u32 why = receive(c, xdp, &p, h, now, &epoch);
	if (why != COUNTED)
		count(epoch, why);
	return XDP_PASS;
}

char _license[] SEC("license") = "Apache-2.0";

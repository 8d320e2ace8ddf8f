// SPDX-License-Identifier: Apache-2.0

// OmniMon's host role in the kernel: the same packets, bytes and counts as package
// hostagent/omnimon. Program egress runs at TCX or clsact, ingress at XDP, because only XDP can
// remove bytes behind an EtherType that the kernel does not know.
//
// All arrays but the counters are shared by the processors. A packet adds to its slot by atomic
// instructions; a flow whose packets carry differences has a spin lock instead. A slot has the
// number of its epoch; the first packet of a later epoch that uses the same slot clears it, under a
// spin lock that the number of the slot selects. So nothing has to be cleared when an epoch begins,
// and counting goes on without the agent.

#include "../../../kernel/bpf/common.h"

enum { PASS = -1, SHOT = 2 }; // TCX_NEXT and TCX_DROP, TC_ACT_UNSPEC and TC_ACT_SHOT

enum {
	FIN = 1,
	SYN = 2,
	RST = 4,
	PSH = 8,
	ACK = 16,
	HEADERS = 128, // no header that the programs read ends beyond it
	MACS = 12,
	WINDOW = 4, // the largest distance of a packet's epoch to the current one
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
	NO_LEASE,
	NO_ROOM,
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
	UNREAD = COUNTERS, // packets that queries did not see, because map events was full
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
	u32 ports; // source in the lower half
	u8 proto, v6;
	u16 zero;
};

// flow_place is what the packets of a flow need of its entry.
struct flow_place {
	u32 index, zero;
	u64 slots; // 16 bits each
};

struct flow_entry {
	u16 slots[4];
	u64 first; // epoch
	u32 mapping, state;
	struct flow_key key;
};

// flow_slot is one cache line. A packet adds to two values at once, as one of 64 bits.
struct flow_slot {
	u64 epoch, bytes;
	u32 packets, ack, syn, syn_ack, fin_rst, bare, matched, check;
	s32 extremes[MAX_EXTREMES];
	u64 unused;
};

struct lock {
	struct bpf_spin_lock lock;
	u32 unused[15];
};

struct counts {
	u64 epoch;
	u64 n[COUNTERS + 1]; // the last: UNREAD
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
	u32 events; // what queries need: EVENTS and others
	u32 unused[2];
	u64 sealed[MAX_GENERATIONS];   // epoch plus one
	u64 released[MAX_GENERATIONS]; // epoch plus one
	u64 behind[MAX_GENERATIONS];   // epoch plus one, if a packet was counted WINDOW epochs later
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
	__type(value, struct flow_place);
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

// events are the packets that a host sent while queries run, for the agent, which runs the queries.
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} events SEC(".maps");

// Bits of control.events.
enum {
	EVENTS = 1,      // of packets
	EVENTS_DNS = 2,  // with the beginning of a DNS message
	EVENTS_DATA = 4, // with the payload
	EVENTS_TIME = 8, // with the time at which it was sent
};

enum {
	DNS_PORT = 53,
	MAX_DNS = 512,    // bytes that hold the first question of a message
	MAX_DATA = 16383, // bytes of a payload
};

// event is a packet that was counted, or the segments of one that will be segmented.
struct event {
	u64 epoch, sent; // sent: nanoseconds of CLOCK_MONOTONIC
	struct flow_key key;
	u32 index, length; // of the flow; of the IP packet
	u16 segment, window; // segment: data in each segment but the last, 0: no segments
	u8 ttl, flags, headers, zero; // headers: length of IP and transport
};

struct event_data {
	struct event event;
	u8 payload[MAX_DATA + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct event_data);
} scratch SEC(".maps");

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
	if (why <= UNREAD)
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

inline u16 load16(const void *p) { return bpf_ntohs(*(const u16 *)p); }

// parse_link parses the MAC addresses and at most two VLAN tags. It returns false if the frame is
// truncated.
inline bool parse_link(void *data, void *end, struct packet *p) {
	u32 at = MACS;
	if (data + at + 2 > end)
		return false;
	u16 type = load16(data + at);
	if (is_tag(type)) {
		at += 4;
		if (data + at + 2 > end)
			return false;
		type = load16(data + at);
		if (is_tag(type)) {
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
		*(u64 *)p->key.src = *(u32 *)(b + 12);
		*(u64 *)p->key.dst = *(u32 *)(b + 16);
		p->ttl = b[8];
		later = load16(b + 6) & 0x1fff;
	} else if (type == ETH_IPV6) {
		if ((void *)b + 40 > end || b[0] >> 4 != 6)
			return MALFORMED;
		size = 40;
		p->length = 40 + load16(b + 4);
		p->key.v6 = 1;
		p->key.proto = b[6];
		for (u32 i = 0; i < 16; i += 8) {
			*(u64 *)(p->key.src + i) = *(u64 *)(b + 8 + i);
			*(u64 *)(p->key.dst + i) = *(u64 *)(b + 24 + i);
		}
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
	p->key.ports = load16(b) | (u32)load16(b + 2) << 16;
	p->payload += size;
	p->headers += size;
	return COUNTED;
}

// check_value is wire.Check.
inline u32 check_value(const struct flow_key *k) {
	const u64 *src = (const u64 *)k->src, *dst = (const u64 *)k->dst;
	u64 h = step(step(0, src[0]), dst[0]);
	if (k->v6)
		h = step(step(h, src[1]), dst[1]);
	return step(h, (u64)(u16)k->ports << 32 | k->ports >> 16 << 16 | k->proto);
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

inline void clear(struct flow_slot *s, u64 epoch, u32 check) {
	if (s->epoch < epoch) {
		__builtin_memset(&s->bytes, 0, sizeof(*s) - sizeof(s->epoch));
		s->check = check;
		__sync_lock_test_and_set(&s->epoch, epoch); // after the others
	}
}

// renew clears slot number n if it is of an older epoch. It returns false if the slot belongs to a
// flow with another check value, or to a later epoch.
inline bool renew(struct flow_slot *s, u32 n, u64 epoch, u32 check) {
	if (s->epoch == epoch && s->check == check)
		return true;
	struct lock *l = lock_of(n);
	if (!l)
		return false; // unreachable
	bpf_spin_lock(&l->lock);
	clear(s, epoch, check);
	bool same = s->epoch == epoch && s->check == check;
	bpf_spin_unlock(&l->lock);
	return same;
}

// add2 adds to two values that lie next to each other.
inline void add2(u32 *first, u32 n, u32 second) {
	__sync_fetch_and_add((u64 *)first, (u64)second << 32 | n);
}

// add counts a packet, or the segments of one that will be segmented: all have its flags, but FIN
// belongs to the last.
inline void add(struct flow_slot *s, const struct packet *p, u32 segments, bool matched) {
	u8 flags = p->flags;
	u32 acks = 0, ends = flags & (FIN | RST) ? 1 : 0;
	if (flags & RST)
		ends = segments;
	if ((flags & (SYN | RST | ACK)) == ACK)
		acks = segments - (flags & FIN ? 1 : 0);
	__sync_fetch_and_add(&s->bytes, p->length + (u64)(segments - 1) * p->headers);
	add2(&s->packets, segments, acks);
	if (flags & SYN)
		add2(&s->syn, flags & ACK ? 0 : segments, flags & ACK ? segments : 0);
	u32 bare = p->tcp && p->length == (p->key.v6 ? 60 : 40);
	if (ends | bare)
		add2(&s->fin_rst, ends, bare);
	if (matched)
		__sync_fetch_and_add(&s->matched, 1);
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
inline u32 begin(struct control_block *c, struct packet *p, u64 now, struct flow_place *place) {
	u32 *host = find_host(p->key.src, p->key.v6);
	if (!host || *host != own_host || !find_host(p->key.dst, p->key.v6))
		return FOREIGN;
	u32 index;
	if (bpf_map_pop_elem(&free_indexes, &index)) {
		if (*(volatile u32 *)&c->fresh_index >= flow_limit)
			return UNTRACKED;
		index = __sync_fetch_and_add(&c->fresh_index, 1);
		if (index >= flow_limit)
			return UNTRACKED;
	}
	struct flow_entry *e = bpf_map_lookup_elem(&entries, &index);
	if (!e)
		return UNTRACKED;
	struct began b = { .index = index, .mapping = take_mapping(c) };
	u64 *slots = bpf_map_lookup_elem(&mappings, &b.mapping);
	place->index = index;
	place->slots = slots ? *slots : 0;
	__builtin_memcpy(e->slots, &place->slots, 8);
	e->first = now;
	e->mapping = b.mapping;
	e->key = p->key;
	e->state = ACTIVE;
	if (bpf_map_update_elem(&flows, &p->key, place, BPF_NOEXIST)) {
		// Another processor added the flow. The agent gives index and mapping back.
		e->state = RETURNED;
		bpf_map_push_elem(&begun, &b, 0);
		struct flow_place *found = bpf_map_lookup_elem(&flows, &p->key);
		if (!found)
			return UNTRACKED;
		*place = *found;
		return COUNTED;
	}
	bpf_map_push_elem(&begun, &b, 0);
	return COUNTED;
}

inline u32 header_size(void) { return 8 + 2 * slots_per_flow + 4 * extremes; }

// link_layer is the MAC addresses and tags of a frame.
struct link_layer {
	u64 macs;
	u32 rest, tags[2];
};

// get_link reads the link layer at the front of a frame, which has an IP packet or a header as well.
inline bool get_link(void *data, void *end, struct link_layer *l) {
	if (data + 20 > end)
		return false;
	l->macs = *(u64 *)data;
	l->rest = *(u32 *)(data + 8);
	l->tags[0] = *(u32 *)(data + 12);
	l->tags[1] = *(u32 *)(data + 16);
	return true;
}

// put_link writes a link layer of a length with the EtherType type.
inline bool put_link(void *data, void *end, u32 length, const struct link_layer *l, u16 type) {
	void *to = data + 12;
	if (to + 2 > end)
		return false;
	*(u64 *)data = l->macs;
	*(u32 *)(data + 8) = l->rest;
	if (length >= 18) {
		if (to + 6 > end)
			return false;
		*(u32 *)to = l->tags[0];
		to += 4;
	}
	if (length == 22) {
		if (to + 6 > end)
			return false;
		*(u32 *)to = l->tags[1];
		to += 4;
	}
	*(u16 *)to = bpf_htons(type);
	return true;
}

// read_by_queries sends what queries need of a packet to the agent.
inline void read_by_queries(struct __sk_buff *skb, const struct packet *p, u32 needs, u64 now, u32 index,
			    u32 shift, u32 size) {
	u32 zero = 0;
	struct event_data *d = bpf_map_lookup_elem(&scratch, &zero);
	if (!d)
		return; // unreachable
	struct event *e = &d->event;
	e->epoch = now;
	e->sent = needs & EVENTS_TIME ? bpf_ktime_get_ns() : 0;
	e->key = p->key;
	e->index = index;
	e->length = p->length;
	e->headers = p->headers;
	e->segment = skb->gso_size;
	e->window = p->window;
	e->ttl = p->ttl;
	e->flags = p->flags;
	if (size > MAX_DATA || (size && bpf_skb_load_bytes(skb, p->payload + shift, d->payload, size))) {
		count(now, UNREAD);
		return;
	}
	// The agent reads map events periodically, so it is not woken up.
	if (bpf_ringbuf_output(&events, d, sizeof(*e) + size, BPF_RB_NO_WAKEUP))
		count(now, UNREAD);
}

// payload_size is how much of the payload queries need.
inline u32 payload_size(const struct __sk_buff *skb, const struct packet *p, u32 needs) {
	if (p->payload >= skb->len)
		return 0;
	u32 size = skb->len - p->payload;
	if (needs & EVENTS_DATA)
		return size;
	if (!(needs & EVENTS_DNS) || p->key.proto != UDP ||
	    ((u16)p->key.ports != DNS_PORT && p->key.ports >> 16 != DNS_PORT))
		return 0;
	return size < MAX_DNS ? size : MAX_DNS;
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
	struct link_layer old;
	if (parse_link(data, end, &p))
		why = parse_ip(data, end, p.type, &p);
	if (why != COUNTED || !get_link(data, end, &old)) {
		count(now, why);
		return PASS;
	}
	struct flow_place place = {}, *found = bpf_map_lookup_elem(&flows, &p.key);
	if (found) {
		place = *found;
	} else {
		why = begin(c, &p, now, &place);
		if (why != COUNTED) {
			count(now, why);
			return PASS;
		}
	}
	u32 segments = 1, longest = p.length, size = header_size(), needs = c->events, data_size = 0;
	if (needs)
		data_size = payload_size(skb, &p, needs);
	if (skb->gso_size && p.length > p.headers) {
		segments = (p.length - p.headers + skb->gso_size - 1) / skb->gso_size;
		longest = p.headers + skb->gso_size;
	}
	// Differences, the string and the payload are of one packet, so they need packets that are not
	// segmented later.
	if (longest > max_length || (segments > 1 && (extremes || c->match || data_size)) ||
	    bpf_skb_change_head(skb, size, 0)) {
		count(now, UNTRACKED);
		return PASS;
	}
	bool matched = false;
	if (c->match)
		matched = contains(skb, search_skb, p.payload + size, skb->len, c->match);

	u32 at = (u32)(now & (generations - 1)) * flow_limit + place.index;
	struct flow_slot *s = bpf_map_lookup_elem(&outgoing, &at);
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	void *h = data + (p.link & 31);
	if (!s || h + size > end || size < 10 || size > MAX_HEADER || !put_link(data, end, p.link, &old, ether_type))
		return SHOT; // unreachable: the frame has an IP header
	u32 differences[MAX_EXTREMES] = {};
	if (extremes) {
		struct lock *l = lock_of(place.index);
		if (!l)
			return SHOT; // unreachable
		bpf_spin_lock(&l->lock);
		clear(s, now, 0);
		u32 first = !s->packets;
		for (u32 i = 0; i < MAX_EXTREMES; i++) {
			if (i >= extremes)
				break;
			s32 value = field(i, &p), before = s->extremes[i];
			if (first || (minima[i] ? value < before : value > before)) {
				differences[i] = first ? value : value - before;
				s->extremes[i] = value;
			}
		}
		add(s, &p, segments, matched);
		bpf_spin_unlock(&l->lock);
	} else {
		renew(s, place.index, now, 0);
		add(s, &p, segments, matched);
	}
	if (p.flags & (FIN | SYN | RST)) {
		struct flow_entry *e = bpf_map_lookup_elem(&entries, &place.index);
		if (e && p.flags & (FIN | RST)) {
			if (__sync_lock_test_and_set(&e->state, ENDED) == ACTIVE)
				bpf_map_push_elem(&endings, &place.index, 0);
		} else if (e) {
			__sync_val_compare_and_swap(&e->state, ENDED, REOPENED);
		}
	}
	*(u64 *)h = bpf_cpu_to_be64(now << 48 | (u64)place.index << 24 | (place.slots & 0xffff));
	for (u32 i = 1; i < 4; i++) {
		if (i < slots_per_flow)
			*(u16 *)(h + 6 + 2 * i) = bpf_htons(place.slots >> 16 * i);
	}
	for (u32 i = 0; i < MAX_EXTREMES; i++) {
		if (i < extremes)
			*(u32 *)(h + 6 + 2 * slots_per_flow + 4 * i) = bpf_htonl(differences[i]);
	}
	*(u16 *)(h + size - 2) = bpf_htons(p.type);
	if (needs)
		read_by_queries(skb, &p, needs, now, place.index, size, data_size);
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
		bool gone = (s32)((u32)(used >> 32) - (u32)epoch) > 0; // a later epoch has the pages
		if (used >> 32 != (u32)epoch)
			used = tag;
		if (!gone && (u32)used < page_limit) {
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

// receive counts an incoming packet without its header, which begins with head, or returns why it
// does not, and the epoch to which that belongs.
inline u32 receive(struct control_block *c, struct xdp_md *xdp, struct packet *p, u64 head, const s32 *differences,
		   u64 now, u64 *epoch) {
	s32 distance = (s16)((u16)(head >> 48) - (u16)now);
	*epoch = now;
	if (distance > WINDOW || distance < -WINDOW)
		return UNKNOWN_EPOCH;
	u64 e = now + distance;
	if (distance > 0)
		advance(c, e);
	u32 g = e & (generations - 1) & (MAX_GENERATIONS - 1);
	if (e < c->base || e > now + WINDOW || c->sealed[g] == e + 1)
		return LATE;
	if (distance == -WINDOW)
		c->behind[g] = e + 1;
	*epoch = e;
	u32 index = head >> 24 & 0xffffff;
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
	if (!s)
		return INGRESS_FULL; // unreachable
	bool matched = false;
	if (c->match)
		matched = contains(xdp, search_xdp, p->payload, bpf_xdp_get_buff_len(xdp), c->match);
	if (!renew(s, at, e, check_value(&p->key)))
		return FORGED;
	for (u32 i = 0; i < MAX_EXTREMES; i++) {
		if (i < extremes)
			__sync_fetch_and_add(&s->extremes[i], differences[i]);
	}
	add(s, p, 1, matched);
	return COUNTED;
}

SEC("xdp.frags")
int ingress(struct xdp_md *xdp) {
	struct control_block *c = state();
	struct packet p = {};
	struct link_layer old;
	s32 differences[MAX_EXTREMES] = {};
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
	void *h = data + (p.link & 31);
	if (h + size > end || size < 10 || size > MAX_HEADER || !get_link(data, end, &old)) {
		count(now, MALFORMED);
		return XDP_PASS;
	}
	u64 head = bpf_be64_to_cpu(*(u64 *)h);
	for (u32 i = 0; i < MAX_EXTREMES; i++) {
		if (i < extremes)
			differences[i] = bpf_ntohl(*(u32 *)(h + 6 + 2 * slots_per_flow + 4 * i));
	}
	u16 next = load16(h + size - 2);
	if (bpf_xdp_adjust_head(xdp, size)) {
		count(now, MALFORMED); // unreachable: the frame has more bytes
		return XDP_PASS;
	}
	data = (void *)(long)xdp->data;
	end = (void *)(long)xdp->data_end;
	if (!put_link(data, end, p.link, &old, next))
		return XDP_DROP; // unreachable
	if (parse_ip(data, end, next, &p) != COUNTED) {
		count(now, MALFORMED);
		return XDP_PASS;
	}
	u64 epoch;
	u32 why = receive(c, xdp, &p, head, differences, now, &epoch);
	if (why != COUNTED)
		count(epoch, why);
	return XDP_PASS;
}

char _license[] SEC("license") = "Apache-2.0";

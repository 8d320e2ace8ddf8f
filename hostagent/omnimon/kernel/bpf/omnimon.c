// SPDX-License-Identifier: Apache-2.0

// OmniMon's host role in the kernel: the same packets, bytes and counts as package
// hostagent/omnimon. Programs egress and ingress run at TCX or clsact. Program egress inserts the
// header in one of three carriers; program ingress removes all three.
//
//	shim    MACs | EtherType of the shim | body | EtherType of IP | IP packet
//	option  IPv4: the first option. IPv6: a destination options header behind the fixed header
//	tunnel  IP | UDP | Geneve with an option | IP packet
//
// All arrays but the counters are shared by the processors. A packet adds to its slot by atomic
// instructions; a flow whose packets carry differences has a spin lock instead. A slot has the
// number of its epoch; the first packet of a later epoch that uses the same slot clears it, under a
// spin lock that the number of the slot selects. So nothing has to be cleared when an epoch begins,
// and counting goes on without the agent.

#include "../../../kernel/bpf/packet.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum { PASS = -1, SHOT = 2 }; // TCX_NEXT and TCX_DROP, TC_ACT_UNSPEC and TC_ACT_SHOT

enum {
	FIN = 1,
	SYN = 2,
	RST = 4,
	PSH = 8,
	ACK = 16,
	LINK = 14,     // bytes of a link layer without VLAN tags
	WINDOW = 4,    // the largest distance of a packet's epoch to the current one
	PAGE = 64,     // slots of incoming flows
	CELLS = 8,     // of a bucket
	CHOICES = 8,   // buckets that a flow may be in
	FIRST = 4096,  // buckets that are the first choice
	ADDRESSES = 64, // places of map hosts that an address may be in
	LOCKS = 4096,
	MAX_GENERATIONS = 32,
	MAX_EXTREMES = 4,
	MAX_CARRIER = 100, // bytes
	LATE_EPOCHS = 64,
	CHUNK = 64,
	MSS = 2,           // the kind of the TCP option
	LEAST_MSS = 536,   // smaller ones are left as they are
	MAX_LENGTH = 0xffff,
};

enum { SHIM, OPTION, TUNNEL, NONE, BROKEN }; // carriers, and what find_carrier returns besides them

enum {
	IPV4_OPTION = 0x9e, // for experiments (RFC 4727), copied to fragments
	IPV6_OPTION = 0x3e, // for experiments, skipped by who does not know it
	NO_OPERATION = 1,
	PAD_N = 1,
	GENEVE_PORT = 6081,
	GENEVE_CLASS = 0xff5e, // for experiments (RFC 8926)
	GENEVE_TYPE = 1,
	UDP_AND_GENEVE = 16, // bytes, without the option
	FIRST_PORT = 0xc000, // of the sources of tunnels
	DONT_FRAGMENT = 0x4000,
};

// A probe is a UDP packet to PROBE_PORT whose data begins with a message. lease/wire.go describes it.
enum {
	PROBE_PORT = 9352,
	MESSAGE = 28, // bytes
	KIND_PROBE = 1,
	KIND_REPLY = 2,
	FLAG_CARRIER = 1,
	PROBE_HOPS = 0x80,      // the bit of the hops of a probe
	PROBE_INDEX = 0xffffff, // its host index
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
	UNREAD = COUNTERS, // packets that the agent's queries did not see, because map copies was full
	UNCOUNTED,         // packets that the kernel's queries did not see, because no generation was free
	ALL_COUNTERS,
};

enum { FIELD_LENGTH, FIELD_TTL, FIELD_WINDOW };

// States of an entry.
enum { UNUSED, ACTIVE, ENDED, REOPENED, RETURNED };

// Settings, constant while a program is loaded.
volatile const u8 carrier; // of outgoing packets
volatile const u8 keep_mss;
volatile const u16 ether_type; // of the shim
volatile const u16 own_host;
volatile const u32 slots_per_flow;
volatile const u32 extremes;
volatile const u8 fields[MAX_EXTREMES];
volatile const u8 minima[MAX_EXTREMES];
volatile const u32 flow_limit;
volatile const u32 bucket_mask;    // buckets less one
volatile const u32 index_mask;     // of the index in a cell
volatile const u32 host_mask;      // places of map hosts, less one
volatile const u64 hash_seed;
volatile const u32 mapping_limit;  // mappings that flows may have
volatile const u32 page_limit;     // pages of incoming flows in an epoch
volatile const u32 pages_per_host; // of the directory
volatile const u32 host_limit;
volatile const u32 generations;    // epochs that the arrays hold, a power of two

// bucket finds flows: half a cache line of cells. A cell is 0 or has upper bits of the flow's hash, of
// which the first is set, and its index.
struct bucket {
	u32 cells[CELLS];
};

// flow_entry is one cache line.
struct flow_entry {
	u64 slots;           // 16 bits each
	u32 first;           // epoch, counted from the base
	u32 lease;           // of the destination
	u32 mapping, state;
	struct key key;
};

// flow_slot is one cache line. A packet adds to two values at once, as one of 64 bits.
struct flow_slot {
	u32 mark;  // incoming: check value of the flow; outgoing: packets with the string
	u32 epoch; // counted from the base, plus one
	u64 bytes;
	u32 packets, ack, syn, syn_ack, fin_rst, bare;
	u64 rest; // incoming: packets with the string; outgoing: untagged packets, 26 bits, and their bytes
	s32 extremes[MAX_EXTREMES];
};

enum { UNTAGGED_BYTES = 26 }; // the first bit of the bytes in flow_slot.rest

struct lock {
	struct bpf_spin_lock lock;
	u32 unused[15];
};

// late counts the packets of an epoch that was reported.
struct late {
	u16 epoch; // its lower bits
	u16 unused;
	u32 packets; // 0: the cell is free
};

struct counts {
	u64 epoch;
	u64 n[ALL_COUNTERS];
	u64 late_epoch;      // to which late belongs
	struct late late[LATE_EPOCHS];
};

enum { FREE, IPV4, IPV6 }; // address.kind

// address is an address of a host. Its number selects its lease.
struct address {
	u64 bytes[2]; // in network order; an IPv4 address is the first four bytes
	u32 kind, host, number, unused;
};

// lease allows tagging packets to an address.
struct lease {
	u64 until;      // nanoseconds of CLOCK_MONOTONIC
	u32 max_length; // of an IP packet with its carrier
	u32 unused;
};

// began is a flow that has an entry since the agent looked last.
struct began {
	u32 index, mapping;
};

// probe is a probe or reply that arrived, for the agent.
struct probe {
	struct key key;
	u32 length; // of the IP packet without carrier
	u8 carried, hops;
	u8 unused[2];
	u8 message[MESSAGE];
	u32 unused2;
};
const struct probe *for_bindings __attribute__((unused));

// query_set is a set of queries: queries.h.
struct query_set {
	u64 gap;       // nanoseconds, the longest time between two packets of a flowlet
	u64 needs;     // NEED_COMPILED and others
	u64 owners[2]; // by generation: the epoch of its results plus one, 0: it is empty
};

struct control_block {
	u64 epoch, base; // base: epoch in which the table began
	// The kernel's own clock, for the time without an agent, in nanoseconds of CLOCK_MONOTONIC: epoch
	// zero begins at start, and nothing happens before deadline. A length of 0: no clock. The clock of
	// the host is ahead of it by slack.
	u64 deadline, length, start, zero, slack;
	u64 given; // newest epoch that the agent stated
	u32 match; // length of the string to find, 0: none
	u32 queries; // there are any
	u32 mtu;    // of the interface
	u32 overflow; // a flow is not in its first bucket
	u64 query_change;              // epoch
	u32 query_before, query_after; // the number of the set in force before and after it, plus one; 0: none
	u64 clock, clock_check; // of read_clock
	u64 unused[2];
	u64 sealed[MAX_GENERATIONS];   // epoch plus one
	u64 released[MAX_GENERATIONS]; // epoch plus one
	u64 behind[MAX_GENERATIONS];   // epoch plus one, if a packet was counted WINDOW epochs later
	u64 pages[MAX_GENERATIONS];    // epoch in the upper half, count in the lower
	u32 fresh_index, fresh_mapping;
	u64 shared; // upper bit: half of the map shared; rest: count of mappings that were taken
	u64 unused2[6];
	struct query_set query_sets[2];
};

#define ARRAY(name, flags, entries, type_)            \
	struct {                                      \
		__uint(type, BPF_MAP_TYPE_ARRAY);     \
		__uint(map_flags, flags);             \
		__uint(max_entries, entries);         \
		__type(key, u32);                     \
		__type(value, type_);                 \
	} name SEC(".maps")
#define SHARED_ARRAY(name, type_) ARRAY(name, BPF_F_MMAPABLE, 1, type_) // with the memory of the agent

SHARED_ARRAY(control, struct control_block);
SHARED_ARRAY(buckets, struct bucket);
SHARED_ARRAY(entries, struct flow_entry);
// outgoing: slots of outgoing flows, by generation and index.
SHARED_ARRAY(outgoing, struct flow_slot);
// incoming: slots of incoming flows, by generation, page and index modulo the size of a page.
SHARED_ARRAY(incoming, struct flow_slot);
// directory: the page of 64 host indexes of a source host, by generation, host and index. Epoch in
// the upper half, page plus one in the lower.
SHARED_ARRAY(directory, u64);
// owners: the cell of the directory, without its generation, that a page belongs to.
SHARED_ARRAY(owners, u64);
// hosts: the addresses of hosts, from the place on that the hash of each selects.
SHARED_ARRAY(hosts, struct address);
// leases: by the number of an address.
SHARED_ARRAY(leases, struct lease);
// Mappings are taken from control.fresh_mapping on, then those of free_mappings, then those of
// shared, the earliest assignment first.
SHARED_ARRAY(shared, u64);
// mappings: the slots of each mapping.
SHARED_ARRAY(mappings, u64);
// The last lock protects the directory.
ARRAY(locks, 0, LOCKS + 1, struct lock);
// automaton finds the string: next state by state and byte. State control.match is final.
ARRAY(automaton, 0, 1, u8[1 << 16]);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_GENERATIONS);
	__type(key, u32);
	__type(value, struct counts);
} counters SEC(".maps");

// Indexes that were used and are free, the latest first; then those from control.fresh_index on.
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1);
	__type(value, u32);
} free_indexes SEC(".maps");

// Mappings that were used and have no flow, the earliest first.
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_mappings SEC(".maps");

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

// probes are probes and replies that arrived, for the agent. The stack does not get them.
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} probes SEC(".maps");

inline struct control_block *state(void) {
	u32 zero = 0;
	return bpf_map_lookup_elem(&control, &zero);
}

inline struct counts *counts_of(u64 epoch) {
	u32 g = epoch & (generations - 1);
	struct counts *c = bpf_map_lookup_elem(&counters, &g);
	if (c && c->epoch != epoch) {
		__builtin_memset(c->n, 0, sizeof(c->n));
		c->epoch = epoch;
	}
	return c;
}

inline void count(u64 epoch, u32 why, u64 n) {
	struct counts *c = counts_of(epoch);
	if (c && why < ALL_COUNTERS)
		c->n[why] += n;
}

// count_late counts packets that arrived in an epoch, by the epoch that they belong to. A cell keeps
// the first epoch that uses it.
part u32 count_late(u64 epoch, u64 late, u32 packets) {
	struct counts *c = counts_of(epoch);
	if (!c)
		return 0; // unreachable
	if (c->late_epoch != epoch) {
		__builtin_memset(c->late, 0, sizeof(c->late));
		c->late_epoch = epoch;
	}
	struct late *l = &c->late[late % LATE_EPOCHS];
	if (!l->packets)
		l->epoch = late;
	if (l->epoch == (u16)late)
		l->packets += packets;
	return 0;
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

// read_clock returns the time of the kernel's coarse clock, in nanoseconds. The coarse clock changes
// with the jiffies, so it is read once in each. clock_check shows that clock is of this jiffy, also
// while another processor writes both.
inline u64 read_clock(struct control_block *c) {
	u64 jiffies = bpf_jiffies64(), clock = *(volatile u64 *)&c->clock;
	if (unlikely((clock ^ *(volatile u64 *)&c->clock_check) != jiffies)) {
		clock = bpf_ktime_get_coarse_ns();
		*(volatile u64 *)&c->clock = clock;
		*(volatile u64 *)&c->clock_check = clock ^ jiffies;
	}
	return clock;
}

// tick returns the current epoch. Without an agent it advances by the kernel's clock.
inline u64 tick(struct control_block *c, u64 clock) {
	u64 length = c->length, start = c->start;
	if (unlikely(length && clock >= c->deadline && (s64)(clock - start) >= 0)) {
		u64 n = (clock - start) / length;
		c->deadline = start + (n + 1) * length;
		advance(c, c->zero + n);
	}
	return *(volatile u64 *)&c->epoch;
}

// bound returns the newest epoch that a packet may move the host to.
inline u64 bound(const struct control_block *c, u64 clock) {
	u64 length = c->length;
	if (!length)
		return c->given + WINDOW;
	s64 since = clock + c->slack - c->start; // start may be before the boot of the host
	return c->zero + (since >= 0 ? (u64)since / length + 1 : 0);
}

// hash is flow.Key.Hash of a flow.
inline u64 hash(u64 seed, const struct key *k) {
	u64 h = step(step(seed, k->src[0]), k->dst[0]);
	if (k->v6)
		h = step(step(h, k->src[1]), k->dst[1]);
	return step(h, (u64)k->sport << 32 | (u32)k->dport << 16 | k->proto);
}

// check_value is wire.Check.
inline u32 check_value(const struct key *k) { return hash(0, k); }

// place_of returns the place of an address in map hosts, or one that is free.
part u32 place_of(u64 first, u64 second, u32 kind) {
	u64 h = step(first, second);
	u32 at = 0;
	for (u32 i = 0; i < ADDRESSES; i++) {
		at = (h + i) & host_mask;
		const struct address *a = bpf_map_lookup_elem(&hosts, &at);
		if (!a || a->kind == FREE || (a->bytes[0] == first && a->bytes[1] == second && a->kind == kind))
			break;
	}
	return at;
}

// address_at returns an address if it is at a place of map hosts, or 0.
inline const struct address *address_at(u32 at, const u64 *bytes, u32 kind) {
	const struct address *a = bpf_map_lookup_elem(&hosts, &at);
	return a && a->bytes[0] == bytes[0] && a->bytes[1] == bytes[1] && a->kind == kind ? a : 0;
}

// find_host returns the entry of an address in map hosts, or 0. Most addresses are at the first of
// their places.
inline const struct address *find_host(const u64 *bytes, u8 v6) {
	u32 kind = IPV4 + v6;
	const struct address *a = address_at(step(bytes[0], bytes[1]) & host_mask, bytes, kind);
	return likely(a) ? a : address_at(place_of(bytes[0], bytes[1], kind), bytes, kind);
}

inline struct lock *lock_of(u32 n) {
	n %= LOCKS;
	return bpf_map_lookup_elem(&locks, &n);
}

// fetch makes the processor fetch a slot, without waiting for it: a write waits aside, while a read
// would stop all that follows. It writes zero where there is no extreme, so zero is there.
inline void fetch(struct flow_slot *s) {
	if (extremes < MAX_EXTREMES)
		*(volatile s32 *)&s->extremes[MAX_EXTREMES - 1] = 0;
}

inline void clear(struct flow_slot *s, u32 epoch, u32 mark) {
	if ((s32)(s->epoch - epoch) < 0) {
		__builtin_memset(&s->bytes, 0, sizeof(*s) - __builtin_offsetof(struct flow_slot, bytes));
		*(volatile u64 *)s = (u64)epoch << 32 | mark; // after the others
	}
}

// renew clears slot number n if it is of an older epoch. It returns false if the slot belongs to a
// flow with another check value, or to a later epoch.
part bool renew(struct flow_slot *s, u32 n, u32 epoch, u32 check) {
	struct lock *l = lock_of(n);
	if (!l || !s)
		return false; // unreachable
	bpf_spin_lock(&l->lock);
	clear(s, epoch, check);
	bool same = s->epoch == epoch && s->mark == check;
	bpf_spin_unlock(&l->lock);
	return same;
}

// wire is what a packet is on the wire: itself, or the segments of a super-packet.
struct wire {
	u32 packets, bytes; // bytes of IP
	u32 longest;        // length of the longest IP packet
};

// on_wire counts the segments of a packet. gso_segs and gso_size are those of the packet before a
// program changed it.
inline void on_wire(struct __sk_buff *skb, const struct headers *p, u32 gso_segs, u32 gso_size, struct wire *w) {
	w->packets = 1;
	w->bytes = w->longest = p->length;
	if (!gso_size)
		return;
	u32 each = p->tcp ? p->payload : divided_at(skb, p->ip, p->type) - p->ip;
	if (p->key.v6 && p->l4 == 48 && !p->fragment)
		each -= 8; // segments have no hop-by-hop header that states the length
	if (each >= p->length)
		return;
	u32 data = p->length - each;
	w->packets = gso_segs ? gso_segs : (data + gso_size - 1) / gso_size;
	w->bytes = data + w->packets * each;
	if (w->packets > 1)
		w->longest = each + gso_size;
}

// add2 adds to two values that lie next to each other.
inline void add2(u32 *first, u32 n, u32 second) {
	__sync_fetch_and_add((u64 *)first, (u64)second << 32 | n);
}

// add counts a packet, or the segments of one: all have its flags, but FIN belongs to the last.
inline void add(struct flow_slot *s, const struct headers *p, const struct wire *w) {
	u8 flags = p->flags;
	u32 n = w->packets, acks = 0, ends = flags & (FIN | RST) ? 1 : 0;
	if (flags & RST)
		ends = n;
	if ((flags & (SYN | RST | ACK)) == ACK)
		acks = n - (flags & FIN ? 1 : 0);
	__sync_fetch_and_add(&s->bytes, w->bytes);
	add2(&s->packets, n, acks);
	if (flags & SYN)
		add2(&s->syn, flags & ACK ? 0 : n, flags & ACK ? n : 0);
	u32 bare = p->tcp && p->length == (p->key.v6 ? 60 : 40);
	if (ends | bare)
		add2(&s->fin_rst, ends, bare);
}

inline s32 field(u32 i, const struct headers *p) {
	switch (fields[i]) {
	case FIELD_LENGTH:
		return p->length;
	case FIELD_TTL:
		return p->ttl;
	default:
		return p->window;
	}
}

// whole reports whether a packet that was parsed has its headers, as packet.IP.Parse does.
inline bool whole(const struct headers *p) { return !p->cut && (p->key.v6 || p->length >= p->l4); }

// search is the state of a search for the string in the payload of a frame.
struct search {
	struct __sk_buff *skb;
	u32 at, end, final;
	u8 state;
};

// search_chunk searches the next bytes. It returns true at the end.
static long search_chunk(u32 n, struct search *s) {
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
	if (bpf_skb_load_bytes(s->skb, s->at, chunk, size))
		return true;
	u8 state = s->state;
	for (u32 i = 0; i < CHUNK && i < size; i++)
		state = next[(u32)state << 8 | chunk[i]];
	s->state = state;
	s->at += size;
	return state == s->final;
}

// contains reports whether the payload of a packet contains the string of a length.
inline bool contains(struct __sk_buff *skb, const struct headers *p, u32 length) {
	struct search s = { .skb = skb, .at = p->ip + p->payload, .end = skb->len, .final = length };
	if (!length || s.at >= s.end)
		return false;
	bpf_loop((s.end - s.at + CHUNK - 1) / CHUNK, search_chunk, &s, 0);
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

// same reports whether the key of an entry is that of a packet. The last fields of the key of the
// packet were written one by one just now, so they are read one by one: a processor that reads all
// of them as one word waits until the writes have reached its cache.
inline bool same(const struct key *entry, const struct key *k) {
	const u64 *x = (const u64 *)entry, *y = (const u64 *)k;
	u64 last = (u64)k->v6 << 40 | (u64)k->proto << 32 | (u32)k->dport << 16 | k->sport;
	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ last));
}

inline struct flow_entry *entry_of(u32 cell) {
	u32 index = cell & index_mask;
	return bpf_map_lookup_elem(&entries, &index);
}

// tag_of is what a cell has besides the index, from the hash of a flow.
inline u32 tag_of(u64 h) { return ((u32)(h >> 32) | 1u << 31) & ~index_mask; }

// bucket_of returns one of the buckets of a flow. The first choice is in the begin of the table, so
// that few flows are in few pages.
inline struct bucket *bucket_of(u64 h, u32 choice) {
	u32 at = (choice ? step(h, choice) >> 20 : h & (FIRST - 1)) & bucket_mask;
	return bpf_map_lookup_elem(&buckets, &at);
}

// hit returns the cell of a bucket that has a tag, if n becomes 1, without branches: the processor
// would predict them wrongly.
inline u32 hit(const struct bucket *b, u32 tag, u64 *n) {
	u64 found = 0, count = 0;
	for (u32 i = 0; i < CELLS; i++) {
		u64 cell = b->cells[i], equal = (s64)(((cell ^ tag) & ~(u64)index_mask) - 1) >> 63;
		found |= cell & equal;
		count -= equal;
	}
	*n = count;
	return found;
}

// claim_in puts a cell into a bucket, and returns the one of the same flow that is there: this one or
// that of another processor; 0 if the bucket is full. Without a cell, it returns the one that is
// there, or 0.
part u32 claim_in(struct bucket *b, const struct key *k, u32 tag, u32 cell) {
	if (!b || !k)
		return 0; // unreachable
	for (u32 i = 0; i < CELLS; i++) {
		u32 found = *(volatile u32 *)&b->cells[i];
		if (cell && !found) {
			found = __sync_val_compare_and_swap(&b->cells[i], 0, cell);
			if (!found)
				return cell;
		}
		if ((found ^ tag) & ~index_mask)
			continue;
		struct flow_entry *e = entry_of(found);
		if (e && same(&e->key, k))
			return found;
	}
	return 0;
}

// claim does what claim_in does, in all buckets of a flow.
part u32 claim(struct control_block *c, const struct key *k, u64 h, u32 cell) {
	u32 found = 0;
	if (!c || !k)
		return 0; // unreachable
	for (u32 n = 0; n < CHOICES && !found; n++) {
		struct bucket *b = bucket_of(h, n);
		if (!b)
			return 0; // unreachable
		found = claim_in(b, k, tag_of(h), cell);
		if (!found && cell)
			*(volatile u32 *)&c->overflow = 1;
		else if (!*(volatile u32 *)&c->overflow)
			break;
	}
	return found;
}

// begin adds a flow, and returns its cell or why there is none.
part u32 begin(struct control_block *c, const struct key *k, u64 now, u64 h) {
	if (!c || !k)
		return UNTRACKED; // unreachable
	const struct address *source = find_host(k->src, k->v6), *to = find_host(k->dst, k->v6);
	if (!source || source->host != own_host || !to)
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
		return UNTRACKED; // unreachable
	struct began n = { .index = index, .mapping = take_mapping(c) };
	u64 *slots = bpf_map_lookup_elem(&mappings, &n.mapping);
	e->slots = slots ? *slots : 0;
	e->first = now - c->base;
	e->lease = to->number;
	e->mapping = n.mapping;
	e->key = *k;
	e->state = ACTIVE;
	u32 cell = tag_of(h) | index, found = claim(c, k, h, cell);
	if (found != cell) // another processor added the flow, or there is no room: the agent gives index
		e->state = RETURNED; // and mapping back
	bpf_map_push_elem(&begun, &n, 0);
	return found ? found : UNTRACKED;
}

inline struct flow_slot *slot_of(u32 cell, u64 epoch) {
	u32 at = (u32)(epoch & (generations - 1)) * flow_limit + (cell & index_mask);
	return bpf_map_lookup_elem(&outgoing, &at);
}

// found returns the cell of a flow if it is in one of its buckets and no other cell of the bucket
// has the same tag, or 0.
inline u32 found(const struct key *k, u64 now, u64 h, u32 choice) {
	struct bucket *b = bucket_of(h, choice);
	u64 n;
	if (!b)
		return 0; // unreachable
	u32 cell = hit(b, tag_of(h), &n);
	if (n != 1)
		return 0;
	struct flow_entry *e = entry_of(cell);
	struct flow_slot *s = slot_of(cell, now);
	if (s)
		fetch(s); // while the entry is read
	return e && same(&e->key, k) ? cell : 0;
}

// find_other finds a flow that is not in its first bucket, or adds it. It returns its cell, or why
// there is none.
part u32 find_other(struct control_block *c, const struct key *k, u64 now, u64 h) {
	u32 cell = 0;
	if (!c || !k)
		return UNTRACKED; // unreachable
	if (*(volatile u32 *)&c->overflow)
		cell = found(k, now, h, 1);
	if (!cell)
		cell = claim(c, k, h, 0);
	return cell ? cell : begin(c, k, now, h);
}

// find returns the cell of a flow, which it adds if it is new, or why there is none.
inline u32 find(struct control_block *c, const struct key *k, u64 now) {
	u64 h = hash(hash_seed, k);
	u32 cell = found(k, now, h, 0);
	return likely(cell) ? cell : find_other(c, k, now, h);
}

// body_size is the length of a header without the EtherType of the payload.
inline u32 body_size(void) { return 6 + 2 * slots_per_flow + 4 * extremes; }
inline u32 option_size(bool v6) { return v6 ? (4 + body_size() + 7) & ~7 : (2 + body_size() + 3) & ~3; }
inline u32 geneve_data(void) { return (body_size() + 3) & ~3; }
inline u32 tunnel_size(bool v6) { return (v6 ? 40 : 20) + UDP_AND_GENEVE + 4 + geneve_data(); }

// carrier_size is the length that a carrier adds to an IP packet.
inline u32 carrier_size(u32 kind, bool v6) {
	return kind == SHIM ? body_size() + 2 : kind == OPTION ? option_size(v6) : tunnel_size(v6);
}

// body is what a header carries.
struct body {
	u64 head; // epoch, host index, hops and the first slot, as in the packet
	u64 slots;
	u32 differences[MAX_EXTREMES];
};

// put_body writes a header without the EtherType of the payload.
inline void put_body(u8 *to, const struct body *b) {
	*(u64 *)to = bpf_cpu_to_be64(b->head);
	for (u32 i = 1; i < 4; i++) {
		if (i < slots_per_flow)
			*(u16 *)(to + 6 + 2 * i) = bpf_htons(b->slots >> 16 * i);
	}
	for (u32 i = 0; i < MAX_EXTREMES; i++) {
		if (i < extremes)
			*(u32 *)(to + 6 + 2 * slots_per_flow + 4 * i) = bpf_htonl(b->differences[i]);
	}
}

// sum_body adds up the words of what put_body writes. They are still in registers: the processor would
// wait for the packet, which has them in other pieces.
inline u64 sum_body(const struct body *b) {
	u64 head = bpf_cpu_to_be64(b->head), n = (head >> 32) + (u32)head;
	for (u32 i = 1; i < 4; i++) {
		if (i < slots_per_flow)
			n += bpf_htons(b->slots >> 16 * i);
	}
	for (u32 i = 0; i < MAX_EXTREMES; i++) {
		if (i < extremes)
			n += bpf_htonl(b->differences[i]);
	}
	return n;
}

inline void get_body(const u8 *from, struct body *b) {
	b->head = bpf_be64_to_cpu(*(u64 *)from);
	for (u32 i = 0; i < MAX_EXTREMES; i++) {
		if (i < extremes)
			b->differences[i] = bpf_ntohl(*(u32 *)(from + 6 + 2 * slots_per_flow + 4 * i));
	}
}

// replaced is the checksum of data in which words change, of which the sum of the complements of the
// old ones and of the new ones is n (RFC 1624).
inline u16 replaced(u16 checksum, u64 n) { return ~updated(~checksum, n, 0); }

// sum adds up the words of a header of at most 64 bytes, a multiple of 4.
inline u64 sum(const u8 *b, u32 size) {
	u64 n = 0;
	for (u32 i = 0; i < 64; i += 4) {
		if (i < size)
			n += *(u32 *)(b + i);
	}
	return n;
}

// tag is the VLAN tag in front of a frame that has one in its data.
struct tag {
	u16 proto, control;
	bool taken;
};

// untag takes the first VLAN tag off a frame, so that no tag is in its data: a second one stays
// outside of it. It returns false if the kernel knows no tag of its type.
inline bool untag(struct __sk_buff *skb, u32 type, struct tag *t) {
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (data + 18 > end)
		return false;
	t->proto = skb->vlan_present ? skb->vlan_proto : *(u16 *)(data + 12);
	t->control = skb->vlan_present ? skb->vlan_tci : load16(data + 14);
	if (bpf_skb_vlan_pop(skb))
		return false;
	t->taken = true;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	return data + LINK <= end && load16(data + 12) == type;
}

inline bool tag_again(struct __sk_buff *skb, const struct tag *t) {
	return !t->taken || !bpf_skb_vlan_push(skb, t->proto, t->control);
}

// insert_shim moves the MAC addresses to make room. Segmentation repeats the shim as a part of the
// link layer.
inline bool insert_shim(struct __sk_buff *skb, const struct body *b) {
	u32 size = carrier_size(SHIM, false);
	if (bpf_skb_change_head(skb, size, 0))
		return false;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (data + size + LINK > end)
		return false;
	u64 macs = *(u64 *)(data + size);
	u32 rest = *(u32 *)(data + size + 8);
	*(u64 *)data = macs;
	*(u32 *)(data + 8) = rest;
	*(u16 *)(data + 12) = bpf_htons(ether_type);
	put_body(data + LINK, b);
	return true;
}

// insert_option makes room behind the fixed IP header, with all segments keeping their size.
inline bool insert_option(struct __sk_buff *skb, const struct headers *p, const struct body *b) {
	bool v6 = p->key.v6;
	u32 size = option_size(v6), used = (v6 ? 4 : 2) + body_size();
	if (bpf_skb_adjust_room(skb, size, BPF_ADJ_ROOM_NET, BPF_F_ADJ_ROOM_FIXED_GSO))
		return false;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u8 *ip = data + LINK, *o = ip + (v6 ? 40 : 20);
	if ((void *)o + option_size(v6) > end)
		return false;
	if (v6) {
		o[0] = ip[6];
		o[1] = size / 8 - 1;
		o[2] = IPV6_OPTION;
		o[3] = body_size();
		put_body(o + 4, b);
		if (size >= used + 2) { // one byte is Pad1, which is zero
			o[used] = PAD_N;
			o[used + 1] = size - used - 2;
		}
		ip[6] = DESTINATIONS;
		if (*(u16 *)(ip + 4))
			*(u16 *)(ip + 4) = bpf_htons(load16(ip + 4) + size);
		return true;
	}
	u16 first = *(u16 *)ip, length = *(u16 *)(ip + 2), kind = IPV4_OPTION | used << 8, end_of_it = 0;
	*(u16 *)o = kind;
	put_body(o + 2, b);
	if (used & 3) { // d slots have an even length
		end_of_it = NO_OPERATION | NO_OPERATION << 8;
		*(u16 *)(o + used) = end_of_it;
	}
	u64 n = (u16)~first + (u64)(u16)~length + kind + end_of_it + sum_body(b);
	first += size / 4;
	if (length) // of a super-packet above 64 KB it is zero
		length = bpf_htons(bpf_ntohs(length) + size);
	*(u16 *)ip = first;
	*(u16 *)(ip + 2) = length;
	*(u16 *)(ip + 10) = replaced(*(u16 *)(ip + 10), n + first + length);
	return true;
}

// insert_tunnel puts the packet into Geneve, between the same addresses.
inline bool insert_tunnel(struct __sk_buff *skb, const struct headers *p, const struct body *b) {
	bool v6 = p->key.v6;
	u32 size = tunnel_size(v6), port = FIRST_PORT | (check_value(&p->key) & 0x3fff);
	u64 flags = v6 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV4;
	if (bpf_skb_adjust_room(skb, size, BPF_ADJ_ROOM_MAC,
				flags | BPF_F_ADJ_ROOM_ENCAP_L4_UDP | BPF_F_ADJ_ROOM_FIXED_GSO))
		return false;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u8 *ip = data + LINK, *inner = ip + size, *udp = ip + (v6 ? 40 : 20);
	if ((void *)inner + (v6 ? 40 : 20) > end)
		return false;
	u32 length = p->length + size;
	if (v6) {
		*(u32 *)ip = *(u32 *)inner; // version, traffic class and flow label
		*(u16 *)(ip + 4) = bpf_htons(length - 40);
		ip[6] = UDP;
		ip[7] = inner[7];
		for (u32 i = 8; i < 40; i += 8)
			*(u64 *)(ip + i) = *(u64 *)(inner + i);
	} else {
		ip[0] = 0x45;
		ip[1] = inner[1];
		*(u16 *)(ip + 2) = bpf_htons(length);
		*(u16 *)(ip + 4) = *(u16 *)(inner + 4);
		*(u16 *)(ip + 6) = *(u16 *)(inner + 6) & bpf_htons(DONT_FRAGMENT);
		ip[8] = inner[8];
		ip[9] = UDP;
		*(u16 *)(ip + 10) = 0;
		*(u64 *)(ip + 12) = *(u64 *)(inner + 12);
		*(u16 *)(ip + 10) = replaced(0xffff, sum(ip, 20));
	}
	*(u16 *)udp = bpf_htons(port);
	*(u16 *)(udp + 2) = bpf_htons(GENEVE_PORT);
	*(u16 *)(udp + 4) = bpf_htons(length - (v6 ? 40 : 20));
	*(u16 *)(udp + 6) = 0;
	u8 *g = udp + 8;
	g[0] = (4 + geneve_data()) / 4;
	g[1] = 0;
	*(u16 *)(g + 2) = bpf_htons(p->type);
	*(u32 *)(g + 4) = 0;
	*(u16 *)(g + 8) = bpf_htons(GENEVE_CLASS);
	g[10] = GENEVE_TYPE;
	g[11] = geneve_data() / 4;
	put_body(g + 12, b);
	if (body_size() & 3)
		*(u16 *)(g + 12 + body_size()) = 0;
	return true;
}

// insert puts a header into a packet. It returns COUNTED, or NO_ROOM if the packet is as before; or
// MALFORMED if it cannot be sent, which does not happen.
part u32 insert(struct __sk_buff *skb, const struct headers *p, const struct body *b) {
	struct tag t = {};
	if (!p || !b)
		return NO_ROOM; // unreachable
	if (p->ip != LINK && !untag(skb, p->type, &t))
		return tag_again(skb, &t) ? NO_ROOM : MALFORMED;
	bool done = carrier == SHIM ? insert_shim(skb, b) :
		    carrier == OPTION ? insert_option(skb, p, b) : insert_tunnel(skb, p, b);
	if (!tag_again(skb, &t))
		return MALFORMED;
	return done ? COUNTED : NO_ROOM;
}

// insert_fast is insert, with less code for the carrier and the packets that are the most frequent.
inline u32 insert_fast(struct __sk_buff *skb, const struct headers *p, const struct body *b) {
	if (unlikely(carrier != OPTION || p->ip != LINK || p->key.v6))
		return insert(skb, p, b);
	return insert_option(skb, p, b) ? COUNTED : NO_ROOM;
}

// fits reports whether a packet has room for a header. The fields of the lengths of super-packets
// above 64 KB are 0.
inline bool fits(struct __sk_buff *skb, const struct headers *p, const struct wire *w, u32 most) {
	bool v6 = p->key.v6;
	u32 size = carrier_size(carrier, v6), length = v6 ? p->length - 40 : p->length;
	u8 next = 0;
	if (w->longest + size > most)
		return false;
	if (carrier == SHIM)
		return true;
	if (v6 && (bpf_skb_load_bytes(skb, p->ip + 6, &next, 1) || next == HOP_BY_HOP || !length))
		return false;
	if (carrier == OPTION && !v6 && p->l4 + size > 60)
		return false;
	return length > MAX_LENGTH ? carrier == OPTION : length + size <= MAX_LENGTH;
}

// options is a search for the MSS among the options of a TCP header.
struct options {
	u8 bytes[64];
	u32 at, size;
	bool found;
};

static long next_option(u32 n, struct options *o) {
	u32 at = o->at;
	if (at + 4 > o->size || at > 36)
		return 1;
	u8 kind = o->bytes[at], length = o->bytes[at + 1];
	o->found = kind == MSS && length == 4;
	if (o->found || !kind || (kind != NO_OPERATION && length < 2))
		return 1;
	o->at += kind == NO_OPERATION ? 1 : length;
	return 0;
}

// reduce_mss makes the segments of a TCP connection leave room for a header. at is the offset of a
// TCP header of a length with the flag SYN, and most the largest segment.
part u32 reduce_mss(struct __sk_buff *skb, u32 at, u32 length, u32 most) {
	u32 size = length - 20;
	asm volatile("" : "+r"(size)); // the verifier derives the range of what it checks
	if (size < 4 || size > 40)
		return 0;
	struct options o = { .size = size };
	if (most < LEAST_MSS || bpf_skb_load_bytes(skb, at + 20, o.bytes, size))
		return 0;
	bpf_loop(40, next_option, &o, 0);
	u32 i = o.at;
	if (!o.found || i > 36)
		return 0;
	u32 old = o.bytes[i + 2] << 8 | o.bytes[i + 3];
	if (old <= most)
		return 0;
	u16 from = bpf_htons(old), to = bpf_htons(most);
	if (bpf_skb_store_bytes(skb, at + 20 + i + 2, &to, 2, 0))
		return 0;
	if (i & 1) { // the checksum covers words of two bytes
		from = old;
		to = most;
	}
	return bpf_l4_csum_replace(skb, at + 16, from, to, 2);
}

// largest_packet is the length of the longest IP packet to an address with a lease.
inline u32 largest_packet(const struct control_block *c, const struct lease *l, u64 clock) {
	return l && l->until > clock && l->max_length < c->mtu ? l->max_length : c->mtu;
}

// follow_mss reduces the MSS of a SYN between this host and another one that a lease belongs to.
inline void follow_mss(struct __sk_buff *skb, const struct headers *p, u32 most) {
	u32 less = carrier_size(carrier, p->key.v6) + (p->key.v6 ? 60 : 40);
	if (most < MAX_LENGTH && most > less)
		reduce_mss(skb, p->ip + p->l4, p->payload - p->l4, most - less);
}

// message is what a probe or reply begins with.
struct message {
	u64 magic;
	u8 kind, flags, rest[MESSAGE - 10];
};

// read_message copies the message of a probe or reply at an offset. It returns false for other packets.
part bool read_message(struct __sk_buff *skb, u32 at, struct message *m) {
	return m && !bpf_skb_load_bytes(skb, at, m, MESSAGE) && m->magic == 0x31424f52504b534e && // NSKPROB1
	       (m->kind == KIND_PROBE || m->kind == KIND_REPLY);
}

inline bool to_probes(const struct headers *p) { return p->key.proto == UDP && p->key.dport == PROBE_PORT && !p->later; }

#include "queries.h"

// follow_differences updates the extremes of a flow, whose lock is held.
inline void follow_differences(struct flow_slot *s, const struct headers *p, u32 *differences) {
	u32 first = !s->packets;
	for (u32 i = 0; i < MAX_EXTREMES; i++) {
		if (i >= extremes)
			break;
		s32 value = field(i, p), before = s->extremes[i];
		if (first || (minima[i] ? value < before : value > before)) {
			differences[i] = first ? value : value - before;
			s->extremes[i] = value;
		}
	}
}

// follow_flags ends and reopens a flow.
part u32 follow_flags(struct flow_entry *e, u32 index, u8 flags) {
	if (!e)
		return 0; // unreachable
	if (flags & (FIN | RST)) {
		if (__sync_lock_test_and_set(&e->state, ENDED) == ACTIVE)
			bpf_map_push_elem(&endings, &index, 0);
	} else {
		__sync_val_compare_and_swap(&e->state, ENDED, REOPENED);
	}
	return 0;
}

SEC("tc")
int egress(struct __sk_buff *skb) {
	struct control_block *c = state();
	struct headers p;
	if (!c)
		return PASS;
	u64 clock = read_clock(c), now = tick(c, clock);
	u32 result = parse(skb, &p);
	if (unlikely(result != PARSED || !whole(&p))) {
		count(now, result == PARSE_NOT_IP ? NOT_IP : MALFORMED, 1);
		return PASS;
	}
	struct wire w;
	on_wire(skb, &p, skb->gso_segs, skb->gso_size, &w);
	struct body b = { .head = now << 48 };
	if (unlikely(to_probes(&p))) {
		struct message m = {};
		if (read_message(skb, p.ip + p.payload, &m)) {
			if (m.kind != KIND_PROBE || !(m.flags & FLAG_CARRIER))
				return PASS;
			b.head |= (u64)PROBE_INDEX << 24 | PROBE_HOPS << 16;
			return fits(skb, &p, &w, c->mtu) && insert(skb, &p, &b) == COUNTED ? PASS : SHOT;
		}
	}
	u32 cell = find(c, &p.key, now), index = cell & index_mask;
	if (unlikely(cell <= COUNTED)) {
		count(now, cell, cell == UNTRACKED ? w.packets : 1);
		return PASS;
	}
	struct flow_entry *e = entry_of(cell);
	if (!e)
		return PASS; // unreachable
	u32 lease_at = e->lease;
	struct lease *l = bpf_map_lookup_elem(&leases, &lease_at);
	struct flow_slot *s = slot_of(cell, now);
	if (!l || !s)
		return PASS; // unreachable
	u64 slots = e->slots;
	u32 epoch = now - c->base + 1, most = largest_packet(c, l, clock), match = c->match;
	if (unlikely(p.flags & (FIN | SYN | RST))) {
		follow_flags(e, index, p.flags);
		if (p.flags & SYN && !keep_mss)
			follow_mss(skb, &p, most);
	}
	bool asked = c->queries && take_sample(skb, &p, &w, now, index);
	bool matched = match && contains(skb, &p, match);
	b.head |= (u64)index << 24 | (slots & 0xffff);
	b.slots = slots;
	// Differences and the string are of one packet, so they need packets that are not segmented later.
	u32 why = COUNTED;
	if (unlikely(l->until <= clock))
		why = NO_LEASE;
	else if ((w.packets > 1 && (extremes || match)) || !fits(skb, &p, &w, most))
		why = NO_ROOM;
	if (extremes) {
		// The header has the differences, so that the flow is counted before it is inserted. Room for it
		// was checked, but for what the kernel may refuse.
		struct lock *lock = lock_of(index);
		if (!lock)
			return PASS; // unreachable
		bpf_spin_lock(&lock->lock);
		clear(s, epoch, 0);
		if (why == COUNTED) {
			follow_differences(s, &p, b.differences);
			add(s, &p, &w);
		}
		bpf_spin_unlock(&lock->lock);
		if (why == COUNTED && insert(skb, &p, &b) != COUNTED)
			return SHOT;
	} else {
		if (likely(why == COUNTED))
			why = insert_fast(skb, &p, &b);
		if (unlikely(s->epoch != epoch)) // reads the slot after the time for insert
			renew(s, index, epoch, 0);
		if (likely(why == COUNTED))
			add(s, &p, &w);
	}
	if (why == COUNTED) {
		if (matched)
			__sync_fetch_and_add(&s->mark, 1);
	} else {
		if (why == MALFORMED)
			return SHOT; // unreachable
		__sync_fetch_and_add(&s->rest, (u64)w.bytes << UNTAGGED_BYTES | w.packets);
		count(now, why, w.packets);
	}
	if (asked)
		ask(skb);
	return PASS;
}

// page_of returns the number of the page of incoming flows, from 1, that belongs to a cell of the
// directory, or 0 if the epoch has no page left.
part u32 fresh_page(struct control_block *c, u64 epoch, u32 cell, u64 *d) {
	u32 g = epoch & (generations - 1), n = LOCKS;
	struct lock *l = bpf_map_lookup_elem(&locks, &n);
	if (!l || !c || !d)
		return 0; // unreachable
	u64 *pages = &c->pages[g & (MAX_GENERATIONS - 1)], tag = epoch << 32;
	bool fresh = false;
	n = 0;
	bpf_spin_lock(&l->lock);
	u64 value = *d;
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
		u32 at = g * page_limit + n - 1;
		u64 *owner = bpf_map_lookup_elem(&owners, &at);
		if (owner)
			*owner = cell;
	}
	return n;
}

inline u32 page_of(struct control_block *c, u64 epoch, u32 cell) {
	u32 at = (u32)(epoch & (generations - 1)) * host_limit * pages_per_host + cell;
	u64 *d = bpf_map_lookup_elem(&directory, &at);
	if (!d)
		return 0;
	u64 value = *(volatile u64 *)d;
	if (value >> 32 == (u32)epoch && (u32)value)
		return value;
	return fresh_page(c, epoch, cell, d);
}

// locate returns COUNTED if an incoming packet belongs to a slot, or why it does not, and the epoch to
// which that belongs. source is the host of its source address.
inline u32 locate(struct control_block *c, const struct wire *w, const struct body *b, const struct address *source,
		  u64 clock, u64 now, u64 *epoch, u32 *at, struct flow_slot **slot) {
	s32 distance = (s16)((u16)(b->head >> 48) - (u16)now);
	u64 e = now + distance;
	*epoch = now;
	if (unlikely(!source))
		return UNKNOWN_HOST;
	if (unlikely(distance > 0)) {
		if (e > bound(c, clock))
			return UNKNOWN_EPOCH;
		advance(c, e);
	} else if (unlikely(e > now)) {
		return UNKNOWN_EPOCH; // before epoch 0
	}
	u32 g = e & (generations - 1) & (MAX_GENERATIONS - 1);
	if (unlikely(distance < -WINDOW || e < c->base || c->sealed[g] == e + 1)) {
		count_late(now, e, w->packets);
		return LATE;
	}
	if (unlikely(distance == -WINDOW))
		c->behind[g] = e + 1;
	*epoch = e;
	u32 index = b->head >> 24 & 0xffffff;
	if (unlikely(index >= flow_limit))
		return BAD_INDEX;
	u32 page = page_of(c, e, source->host * pages_per_host + index / PAGE);
	if (unlikely(!page))
		return INGRESS_FULL;
	*at = ((u32)(e & (generations - 1)) * page_limit + page - 1) * PAGE + index % PAGE;
	struct flow_slot *s = bpf_map_lookup_elem(&incoming, at);
	if (!s)
		return INGRESS_FULL; // unreachable
	fetch(s);
	*slot = s;
	return COUNTED;
}

// receive counts an incoming packet without its header in slot number at, or returns why it does not.
inline u32 receive(struct control_block *c, struct __sk_buff *skb, const struct headers *p, const struct wire *w,
		   const struct body *b, u64 epoch, u32 at, struct flow_slot *s) {
	u32 tag = epoch - c->base + 1, check = check_value(&p->key);
	bool matched = c->match && contains(skb, p, c->match);
	if (unlikely(*(volatile u64 *)s != ((u64)tag << 32 | check)) && !renew(s, at, tag, check))
		return FORGED;
	for (u32 i = 0; i < MAX_EXTREMES; i++) {
		if (i < extremes)
			__sync_fetch_and_add(&s->extremes[i], b->differences[i]);
	}
	add(s, p, w);
	if (matched)
		__sync_fetch_and_add(&s->rest, 1);
	return COUNTED;
}

// gather moves the first bytes of a packet into one piece. The data of a TCP segment has to stay
// outside of it: only then the kernel joins segments in the queue of a socket. Apart they take half
// as much memory again, and a receiver for which its buffer is too small discards what it has allowed
// the sender to send, together with the acknowledgments that both ends may wait for.
inline void gather(struct __sk_buff *skb, u32 size) {
	u32 have = skb->data_end - skb->data, want = skb->len < size ? skb->len : size;
	if (unlikely(have < want))
		bpf_skb_pull_data(skb, want);
}

// carrier_end returns how many bytes have to be read, from the IP header or shim on, of a packet that
// may have a carrier.
inline u32 carrier_end(struct __sk_buff *skb, const struct headers *p) {
	bool v6 = p->type == ETH_IPV6;
	u32 fixed = v6 ? 40 : 20;
	if (p->type == ether_type)
		return body_size() + 2 + 40;
	gather(skb, p->ip + fixed + 4);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u8 *ip = data + (p->ip & 31), *next = ip + fixed;
	if ((void *)next + 4 > end)
		return fixed;
	if (v6 ? ip[6] == DESTINATIONS && next[2] == IPV6_OPTION : ip[0] != 0x45 && next[0] == IPV4_OPTION)
		return fixed + option_size(v6);
	if (ip[v6 ? 6 : 9] == UDP && load16(next + 2) == GENEVE_PORT)
		return fixed + 8 + 12 + geneve_data() + fixed;
	return fixed + 4;
}

// find_carrier returns the carrier of a packet that was parsed, and reads the header: NONE, or BROKEN
// if the packet ends before the carrier does.
part u32 find_carrier(struct __sk_buff *skb, const struct headers *p, struct body *b) {
	if (!p || !b)
		return NONE; // unreachable
	bool v6 = p->type == ETH_IPV6;
	if (p->type != ether_type && p->type != ETH_IPV4 && !v6)
		return NONE;
	u32 fixed = v6 ? 40 : 20;
	gather(skb, p->ip + carrier_end(skb, p));
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u8 *ip = data + (p->ip & 31);
	if (p->type == ether_type) {
		if ((void *)ip + body_size() + 2 + 20 > end)
			return BROKEN;
		get_body(ip, b);
		u16 next = load16(ip + body_size());
		return next == ETH_IPV4 || (next == ETH_IPV6 && (void *)ip + body_size() + 2 + 40 <= end) ? SHIM : BROKEN;
	}
	u8 *o = ip + fixed;
	if ((void *)o + 4 > end || ip[0] >> 4 != (v6 ? 6 : 4))
		return NONE;
	u32 size = option_size(v6), length = load16(ip + (v6 ? 4 : 2)), header = (ip[0] & 15) * 4;
	if (v6 ? ip[6] == DESTINATIONS && o[1] == size / 8 - 1 && o[2] == IPV6_OPTION && o[3] == body_size() :
		 header > 20 && o[0] == IPV4_OPTION && o[1] == body_size() + 2) {
		if ((void *)o + size > end || length < (v6 ? size : header) ||
		    (!v6 && (header < 20 + size || p->ip + header > skb->len)))
			return BROKEN;
		get_body(o + (v6 ? 4 : 2), b);
		return OPTION;
	}
	u32 words = geneve_data() / 4;
	u8 *g = o + 8;
	if (v6 ? ip[6] != UDP : ip[0] != 0x45 || ip[9] != UDP || load16(ip + 6) & 0x3fff)
		return NONE;
	if ((void *)g + 12 > end || load16(o + 2) != GENEVE_PORT || load16(g + 2) != p->type || g[0] != words + 1 ||
	    load16(g + 8) != GENEVE_CLASS || g[10] != GENEVE_TYPE || g[11] != words)
		return NONE;
	u8 *inner = g + 12 + geneve_data();
	if ((void *)inner + fixed > end || inner[0] >> 4 != ip[0] >> 4)
		return BROKEN;
	get_body(g + 12, b);
	return TUNNEL;
}

// retype makes the kernel take a frame whose link layer has no tag in its data for one with another
// EtherType: it reads the type of what is behind a VLAN tag that it removes.
inline bool retype(struct __sk_buff *skb, u16 type) {
	bool tagged = skb->vlan_present;
	if (!tagged && bpf_skb_vlan_push(skb, bpf_htons(ETH_VLAN), 0))
		return false;
	if (bpf_skb_vlan_push(skb, bpf_htons(ETH_VLAN), 0)) // puts the one before into the data
		return false;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (data + 18 > end)
		return false;
	*(u16 *)(data + 16) = bpf_htons(type);
	return !bpf_skb_vlan_pop(skb) && (tagged || !bpf_skb_vlan_pop(skb));
}

// strip_shim removes a shim in front of an IP packet.
inline bool strip_shim(struct __sk_buff *skb) {
	u32 size = carrier_size(SHIM, false);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (data + LINK + size > end)
		return false;
	u16 next = load16(data + 12 + size);
	return retype(skb, next) && !bpf_skb_adjust_room(skb, -(s32)size, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO);
}

// strip_option removes an option. Before that, it writes the header as it will be, and an option with
// which the sum of all is the same. So a checksum of the whole packet by the device stays valid, of
// which adjust_room subtracts what it removes.
inline bool strip_option(struct __sk_buff *skb, bool v6) {
	u32 size = option_size(v6);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u8 *ip = data + LINK, *o = ip + (v6 ? 40 : 20);
	if ((void *)o + size > end)
		return false;
	u8 next = o[0];
	u64 rest = sum(o, size); // of the option, once the header is written
	u16 *length = (u16 *)(ip + (v6 ? 4 : 2)), *first = (u16 *)(ip + (v6 ? 6 : 0));
	rest += *length + (u64)*first;
	if (*length)
		*length = bpf_htons(bpf_ntohs(*length) - size);
	if (v6)
		ip[6] = next;
	else
		ip[0] -= size / 4;
	rest += (u16)~*length + (u64)(u16)~*first;
	for (u32 i = 0; i < 64; i += 4) {
		if (i < size)
			*(u32 *)(o + i) = 0;
	}
	if (v6) // the checksum of the IPv4 header makes up for all that changes
		*(u16 *)o = updated(0, rest, 0);
	else
		*(u16 *)(ip + 10) = updated(*(u16 *)(ip + 10), rest, 0xffff);
	return !bpf_skb_adjust_room(skb, -(s32)size, BPF_ADJ_ROOM_NET,
				    BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET);
}

// strip_tunnel hands the TTL of the outer packet to the inner one, as switches without a tunnel do.
inline bool strip_tunnel(struct __sk_buff *skb, bool v6) {
	u32 size = tunnel_size(v6), at = v6 ? 7 : 8;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u8 *ip = data + LINK;
	if ((void *)ip + 40 > end)
		return false;
	u8 ttl = ip[at];
	if (bpf_skb_adjust_room(skb, -(s32)size, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
		return false;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	ip = data + LINK;
	if ((void *)ip + 20 > end)
		return true; // the inner packet is truncated
	u16 *word = (u16 *)(ip + (at & ~1));
	u64 n = (u16)~*word;
	ip[at] = ttl;
	n += *word;
	if (v6)
		bpf_csum_update(skb, updated(0, n, 0));
	else
		*(u16 *)(ip + 10) = replaced(*(u16 *)(ip + 10), n);
	return true;
}

// strip removes a carrier, of which the outer headers are p. It returns false if the packet cannot be
// delivered, which does not happen.
part bool strip(struct __sk_buff *skb, const struct headers *p, u32 kind, u32 *broken) {
	struct tag t = {};
	if (!p || !broken)
		return false; // unreachable
	if (p->ip != LINK && !untag(skb, p->type, &t)) {
		*broken = 1;
		return tag_again(skb, &t);
	}
	bool v6 = p->key.v6;
	bool done = kind == SHIM ? strip_shim(skb) : kind == OPTION ? strip_option(skb, v6) : strip_tunnel(skb, v6);
	return tag_again(skb, &t) && done;
}

// hand_over gives a probe or reply to the agent.
part u32 hand_over(const struct headers *p, const struct message *m, u8 carried, u8 hops) {
	if (!p || !m)
		return 0; // unreachable
	struct probe r = { .key = p->key, .length = p->length, .carried = carried, .hops = hops };
	__builtin_memcpy(r.message, m, MESSAGE);
	return bpf_ringbuf_output(&probes, &r, sizeof(r), 0);
}

SEC("tc")
int ingress(struct __sk_buff *skb) {
	struct control_block *c = state();
	struct headers p;
	struct body b = {};
	if (!c)
		return PASS;
	u64 clock = read_clock(c), now = tick(c, clock);
	u32 gso_segs = skb->gso_segs, gso_size = skb->gso_size, result = parse(skb, &p), broken = 0;
	u32 kind = find_carrier(skb, &p, &b), size = option_size(false);
	bool carried = kind < NONE, known = kind == OPTION && !p.key.v6 && p.ip == LINK; // all other fields
	// The option of most packets is removed once their slot is on its way to the processor's cache. Until
	// then offsets in the packet are those with the option, so others are no such packets: probes, and
	// those of which more than their headers has to be read or changed.
	bool later = known && result == PARSED && !(p.flags & SYN) && !to_probes(&p) && !(b.head >> 16 & PROBE_HOPS) &&
		     (p.tcp || !gso_size) && !c->match && !p.cut && p.length >= p.l4;
	if (carried && !later && !strip(skb, &p, kind, &broken))
		return SHOT; // unreachable
	if (unlikely(kind == BROKEN || broken)) {
		count(now, MALFORMED, 1);
		return PASS;
	}
	if (likely(carried)) {
		if (likely(known)) {
			p.l4 -= size;
			p.payload -= size;
			p.length -= size;
		} else {
			result = parse(skb, &p);
		}
		if (unlikely(result != PARSED || !whole(&p))) {
			count(now, MALFORMED, 1);
			return PASS;
		}
	} else if (unlikely(result != PARSED || !whole(&p))) {
		if (p.type == ETH_IPV4 || p.type == ETH_IPV6)
			count(now, NO_HEADER, 1);
		else if (!p.ip)
			count(now, MALFORMED, 1);
		return PASS;
	}
	const struct address *source = 0, *own = 0;
	bool syn = !keep_mss && p.flags & SYN, probe = to_probes(&p);
	if (carried || syn || probe)
		source = find_host(p.key.src, p.key.v6);
	if (unlikely(syn || probe) && source && source->host != own_host)
		own = find_host(p.key.dst, p.key.v6);
	if (own && own->host != own_host)
		own = 0;
	if (unlikely(probe && own)) {
		struct message m = {};
		if (read_message(skb, p.ip + p.payload, &m)) {
			hand_over(&p, &m, carried, b.head >> 16 & 0x7f);
			return SHOT;
		}
	}
	if (unlikely(syn && own)) {
		u32 number = source->number;
		follow_mss(skb, &p, largest_packet(c, bpf_map_lookup_elem(&leases, &number), clock));
	}
	struct wire w;
	on_wire(skb, &p, gso_segs, gso_size, &w);
	if (!carried) {
		count(now, NO_HEADER, w.packets);
		return PASS;
	}
	if (unlikely(b.head >> 16 & PROBE_HOPS))
		return PASS;
	u64 epoch;
	u32 at = 0;
	struct flow_slot *s = 0;
	u32 why = locate(c, &w, &b, source, clock, now, &epoch, &at, &s);
	if (later && !strip_option(skb, false))
		return SHOT; // unreachable
	if (likely(s))
		why = receive(c, skb, &p, &w, &b, epoch, at, s);
	if (unlikely(why != COUNTED))
		count(epoch, why, w.packets);
	return PASS;
}

char _license[] SEC("license") = "Apache-2.0";

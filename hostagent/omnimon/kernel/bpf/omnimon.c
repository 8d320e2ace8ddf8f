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

enum { PASS = -1, SHOT = 2 }; // of TCX: NEXT, DROP; of clsact: UNSPEC, SHOT

enum {
	FIN = 1,
	SYN = 2,
	RST = 4,
	PSH = 8,
	ACK = 16,
	LINK = 14,     // bytes of a link layer without VLAN tags
	WINDOW = 4,    // a packet's epoch may differ from the current epoch by at most this
	PAGE = 64,     // slots of incoming flows in a page
	CELLS = 8,     // cells of a bucket
	CLAIMS = 32,   // places of the directory that may hold a cell, if it has fewer places than cells
	CHOICES = 8,   // buckets that may hold a flow
	FIRST = 4096,  // buckets that can be a flow's first choice
	ADDRESSES = 64, // places of map hosts that may hold an address
	NEAR = 64,      // leases, cells of addresses, and cells of flows in map control
	NEAR_PAGES = 16, // entries of the directory in map control
	LOCKS = 4096,
	MAX_GENERATIONS = 32,
	MAX_EXTREMES = 4,
	MAX_CARRIER = 100, // bytes of a carrier, at most
	LATE_EPOCHS = 64,
	CHUNK = 64,
	MSS = 2,           // the kind of TCP's MSS option
	LEAST_MSS = 536,   // smaller MSS values are not reduced
	MAX_LENGTH = 0xffff,
};

enum { SHIM, OPTION, TUNNEL, NONE, BROKEN }; // carriers, and two other results of find_carrier

enum {
	IPV4_OPTION = 0x9e, // experimental (RFC 4727); copied to fragments
	IPV6_OPTION = 0x3e, // experimental; nodes that do not know it skip it
	NO_OPERATION = 1,
	PAD_N = 1,
	GENEVE_PORT = 6081,
	GENEVE_CLASS = 0xff5e, // experimental (RFC 8926)
	GENEVE_TYPE = 1,
	UDP_AND_GENEVE = 16, // bytes of both headers without the option
	FIRST_PORT = 0xc000, // the lowest source port of tunnels
	DONT_FRAGMENT = 0x4000,
};

// A probe is a UDP packet to PROBE_PORT whose data begins with a message. lease/wire.go describes it.
enum {
	PROBE_PORT = 9352,
	MESSAGE = 28, // bytes of the message
	KIND_PROBE = 1,
	KIND_REPLY = 2,
	FLAG_CARRIER = 1,
	PROBE_HOPS = 0x80,      // marks the hops field of a probe
	PROBE_INDEX = 0xffffff, // the host index of probes
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

// Settings; they do not change while a program is loaded.
volatile const u8 carrier; // carrier of outgoing packets
volatile const u8 keep_mss;
volatile const u16 ether_type; // EtherType of the shim
volatile const u16 own_host;
volatile const u32 slots_per_flow;
volatile const u32 extremes;
volatile const u8 fields[MAX_EXTREMES];
volatile const u8 minima[MAX_EXTREMES];
volatile const u32 flow_limit;
volatile const u32 bucket_mask;    // number of buckets, less one
volatile const u32 index_mask;     // mask of the index in a cell
volatile const u32 host_mask;      // number of places in map hosts, less one
volatile const u64 hash_seed;
volatile const u32 mapping_limit;  // mappings that flows may have
volatile const u32 page_limit;     // pages of incoming flows in an epoch
volatile const u32 pages_per_host; // pages of a host in the directory
volatile const u32 host_limit;
volatile const u32 places; // places of the directory in a generation: one for each cell, or fewer
volatile const u32 generations;    // epochs that the arrays hold, a power of two

// bucket is half a cache line of cells that find flows. A free cell is 0. Any other cell has the
// flow's index and, with their first bit set, the upper bits of the flow's hash.
struct bucket {
	u32 cells[CELLS];
};

// flow_entry is one cache line.
struct flow_entry {
	u64 slots;           // four slots of 16 bits
	u32 first;           // epoch of the first packet, counted from the base
	u32 lease;           // number of the destination's lease
	u32 mapping, state;
	struct key key;
};

// flow_slot is one cache line. A packet adds to two 32-bit values at once, with one 64-bit
// addition.
struct flow_slot {
	u32 mark;  // incoming flows: check value of the flow; outgoing flows: packets with the string
	u32 epoch; // epoch of the slot, counted from the base, plus one
	u64 bytes;
	u32 packets, ack, syn, syn_ack, fin_rst, bare;
	u64 rest; // incoming: packets with the string; outgoing: untagged packets (26 bits), their bytes
	s32 extremes[MAX_EXTREMES];
};

enum { UNTAGGED_BYTES = 26 }; // the bit of flow_slot.rest at which the untagged bytes begin

struct lock {
	struct bpf_spin_lock lock;
	u32 unused[15];
};

// late counts the packets that arrived after their epoch was reported.
struct late {
	u16 epoch; // the lower bits of the epoch
	u16 unused;
	u32 packets; // 0 if the cell is free
};

struct counts {
	u64 epoch;
	u64 n[ALL_COUNTERS];
	u64 late_epoch;      // the epoch whose late packets are in late
	struct late late[LATE_EPOCHS];
};

enum { FREE, IPV4, IPV6 }; // values of address.kind

// address is an address of a host. Its number is the index of its lease.
struct address {
	u64 bytes[2]; // in network order; an IPv4 address is the first four bytes
	u32 kind, host, number, unused;
};

// lease allows tagging packets to an address.
struct lease {
	u64 until;      // end of the lease, in nanoseconds of CLOCK_MONOTONIC
	u32 max_length; // length of the longest IP packet with its carrier
	u32 used;       // time of the last packet to the address, in units of 2^30 nanoseconds
};

// began is a flow that got an entry since the agent last read the map.
struct began {
	u32 index, mapping;
};

// probe is an arrived probe or reply, which the agent reads.
struct probe {
	struct key key;
	u32 length; // length of the IP packet without the carrier
	u8 carried, hops;
	u8 unused[2];
	u8 message[MESSAGE];
	u32 unused2;
};
const struct probe *for_bindings __attribute__((unused));

// query_set is a set of queries, as queries.h describes it.
struct query_set {
	u64 gap;       // longest time between two packets of a flowlet, in nanoseconds
	u64 needs;     // bits such as NEED_COMPILED
	u64 owners[2]; // by generation: the epoch of the results plus one, or 0 if the generation is empty
};

// near_page is a copy of an entry of the directory. Processors write it without a lock, so check
// shows whether key and page belong together.
struct near_page {
	u64 key, page, check; // key: the epoch in the upper half, the cell in the lower half
};

struct control_block {
	u64 epoch, base; // the current epoch; the epoch in which the table began
	// The kernel's own clock, for the time without an agent, in nanoseconds of CLOCK_MONOTONIC:
	// epoch zero begins at start, and the epoch does not advance before deadline. A length of 0
	// means that there is no clock. The clock of the host is ahead of the kernel's clock by slack.
	u64 deadline, length, start, zero, slack;
	u64 given; // the newest epoch that the agent set
	u32 match; // length of the string to find; 0 if there is no string
	u32 queries; // whether there are queries
	u32 mtu;    // MTU of the interface
	u32 overflow; // whether a flow is outside of its first bucket
	u64 query_change;              // epoch from which query_after is in force
	u32 query_before, query_after; // number of the set in force, plus one; 0: no set
	u64 clock, clock_check; // used by read_clock
	u64 unused[2];
	u64 sealed[MAX_GENERATIONS];   // by generation: epoch plus one
	u64 released[MAX_GENERATIONS]; // by generation: epoch plus one
	u64 behind[MAX_GENERATIONS];   // epoch plus one, if a packet was counted WINDOW epochs later
	u64 pages[MAX_GENERATIONS];    // by generation: epoch in the upper half, pages in the lower
	u32 fresh_index, fresh_mapping;
	u64 shared; // highest bit: the half of map shared; other bits: mappings taken
	u64 unused2[6];
	struct query_set query_sets[2];
	// Nearly each packet needs these, so they share a page of memory with the rest of this block.
	// leases has the first NEAR leases. sources has hosts of IPv4 addresses: the address in the upper
	// half, the host plus one in the lower half. cells has cells of flows. In both, a hash selects the
	// place; whoever comes first has it, and 0 is a free one. near_pages has those entries of the
	// directory that the epoch used first.
	struct lease leases[NEAR];
	u64 sources[NEAR];
	u32 cells[NEAR];
	struct near_page near_pages[NEAR_PAGES];
};

#define ARRAY(name, flags, entries, type_)            \
	struct {                                      \
		__uint(type, BPF_MAP_TYPE_ARRAY);     \
		__uint(map_flags, flags);             \
		__uint(max_entries, entries);         \
		__type(key, u32);                     \
		__type(value, type_);                 \
	} name SEC(".maps")
#define SHARED_ARRAY(name, type_) ARRAY(name, BPF_F_MMAPABLE, 1, type_) // the agent maps it into its memory

SHARED_ARRAY(control, struct control_block);
SHARED_ARRAY(buckets, struct bucket);
SHARED_ARRAY(entries, struct flow_entry);
// outgoing holds the slots of outgoing flows, by generation and index.
SHARED_ARRAY(outgoing, struct flow_slot);
// incoming holds the slots of incoming flows, by generation, page and position within the page,
// which is the index modulo the size of a page.
SHARED_ARRAY(incoming, struct flow_slot);
// directory holds, by generation and cell, the page of the cell: the epoch in the upper half, the
// number of the page plus one in the lower half. A cell is a source host and 64 host indexes.
SHARED_ARRAY(directory, u64);
// claims holds, by place of the directory, the cell that has the place: the epoch in the upper half,
// the cell plus one in the lower half. It is used if the directory has fewer places than cells.
SHARED_ARRAY(claims, u64);
// owners holds, by page, the cell of the directory that the page belongs to, without the
// generation.
SHARED_ARRAY(owners, u64);
// hosts holds the addresses of hosts. The hash of an address selects the first of its places.
SHARED_ARRAY(hosts, struct address);
// leases holds the leases from number NEAR on, by the number of the address.
SHARED_ARRAY(leases, struct lease);
// A new flow takes a mapping from control.fresh_mapping on, then from free_mappings, then from
// shared, in which the mapping that was assigned first comes first.
SHARED_ARRAY(shared, u64);
// mappings holds the slots of each mapping.
SHARED_ARRAY(mappings, u64);
// locks protect slots; the last one protects the directory.
ARRAY(locks, 0, LOCKS + 1, struct lock);
// automaton finds the string: it has the next state, by state and byte. State control.match is
// final.
ARRAY(automaton, 0, 1, u8[1 << 16]);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_GENERATIONS);
	__type(key, u32);
	__type(value, struct counts);
} counters SEC(".maps");

// free_indexes holds indexes that flows have returned; the latest is taken first. When it is empty,
// new flows take indexes from control.fresh_index on.
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1);
	__type(value, u32);
} free_indexes SEC(".maps");

// free_mappings holds mappings that flows have returned; the earliest is taken first.
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_mappings SEC(".maps");

// begun and endings tell the agent which flows began and ended. Each has an index at most once.
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

// probes holds arrived probes and replies for the agent. The network stack does not receive them.
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
	asm volatile("" : "+r"(why)); // the compiler keeps the check, which the verifier needs
	if (c && why < ALL_COUNTERS)
		c->n[why] += n;
}

// count_late counts arrived packets of an epoch that was reported. A cell belongs to the first
// epoch that uses it.
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

// read_clock returns the time of the kernel's coarse clock, in nanoseconds. The coarse clock
// changes once in each jiffy, so it is read once in each. clock_check shows whether clock belongs
// to this jiffy, even if another processor writes both at the same time.
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

// bound returns the newest epoch to which a packet may advance the host.
inline u64 bound(const struct control_block *c, u64 clock) {
	u64 length = c->length;
	if (!length)
		return c->given + WINDOW;
	s64 since = clock + c->slack - c->start; // start may be before the boot of the host
	return c->zero + (since >= 0 ? (u64)since / length + 1 : 0);
}

// hash returns flow.Key.Hash of a flow.
inline u64 hash(u64 seed, const struct key *k) {
	u64 h = step(step(seed, k->src[0]), k->dst[0]);
	if (k->v6)
		h = step(step(h, k->src[1]), k->dst[1]);
	return step(h, (u64)k->sport << 32 | (u32)k->dport << 16 | k->proto);
}

// check_value returns wire.Check of a flow.
inline u32 check_value(const struct key *k) { return hash(0, k); }

// place_of returns the place of an address in map hosts, or a free place if the map lacks it.
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

// address_at returns the entry at a place of map hosts if it is the given address, or 0.
inline const struct address *address_at(u32 at, const u64 *bytes, u32 kind) {
	const struct address *a = bpf_map_lookup_elem(&hosts, &at);
	return a && a->bytes[0] == bytes[0] && a->bytes[1] == bytes[1] && a->kind == kind ? a : 0;
}

// find_host returns the entry of an address in map hosts, or 0. Most addresses are at their first
// place.
inline const struct address *find_host(const u64 *bytes, u8 v6) {
	u32 kind = IPV4 + v6;
	const struct address *a = address_at(step(bytes[0], bytes[1]) & host_mask, bytes, kind);
	return likely(a) ? a : address_at(place_of(bytes[0], bytes[1], kind), bytes, kind);
}

// host_of returns the host of the source address of a packet plus one, or 0.
part u32 host_of(const struct control_block *c, const struct key *k) {
	if (!c || !k)
		return 0; // unreachable
	u64 cell = k->v6 ? 0 : *(volatile const u64 *)&c->sources[step(k->src[0], k->src[1]) & (NEAR - 1)];
	if (likely(cell && cell >> 32 == k->src[0]))
		return cell;
	const struct address *a = find_host(k->src, k->v6);
	return a ? a->host + 1 : 0;
}

// read_lease returns a copy of a lease, because the verifier would check all that follows for each
// of the two places of a pointer.
inline struct lease read_lease(const struct control_block *c, u32 number) {
	if (likely(number < NEAR))
		return c->leases[number & (NEAR - 1)];
	const struct lease *l = bpf_map_lookup_elem(&leases, &number);
	return l ? *l : (struct lease){};
}

// use_lease sets the time of the last packet to the address of a lease.
part u32 use_lease(struct control_block *c, u32 number, u32 time) {
	if (!c)
		return 0; // unreachable
	struct lease *l = number < NEAR ? &c->leases[number & (NEAR - 1)] : bpf_map_lookup_elem(&leases, &number);
	if (l)
		*(volatile u32 *)&l->used = time;
	return 0;
}

inline struct lock *lock_of(u32 n) {
	n %= LOCKS;
	return bpf_map_lookup_elem(&locks, &n);
}

// fetch makes the processor load a slot into its cache without waiting for it: a write is queued,
// while a read would stop all that follows. It writes zero to an extreme that is not in use, which
// is zero already.
inline void fetch(struct flow_slot *s) {
	if (extremes < MAX_EXTREMES)
		*(volatile s32 *)&s->extremes[MAX_EXTREMES - 1] = 0;
}

inline void clear(struct flow_slot *s, u32 epoch, u32 mark) {
	if ((s32)(s->epoch - epoch) < 0) {
		__builtin_memset(&s->bytes, 0, sizeof(*s) - __builtin_offsetof(struct flow_slot, bytes));
		*(volatile u64 *)s = (u64)epoch << 32 | mark; // written after the other fields
	}
}

// renew clears slot number n if it holds an earlier epoch. It returns false if the slot belongs to
// a flow with another check value, or to a later epoch.
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

// wire describes a packet on the wire: the packet itself, or the segments of a super-packet.
struct wire {
	u32 packets, bytes; // packets; bytes of their IP packets
	u32 longest;        // length of the longest IP packet
};

// on_wire counts the segments of a packet. gso_segs and gso_size are the values before a program
// changed the packet.
inline void on_wire(struct __sk_buff *skb, const struct headers *p, u32 gso_segs, u32 gso_size, struct wire *w) {
	w->packets = 1;
	w->bytes = w->longest = p->length;
	if (!gso_size)
		return;
	u32 each = p->tcp ? p->payload : divided_at(skb, p->ip, p->type) - p->ip;
	if (p->key.v6 && p->l4 == 48 && !p->fragment)
		each -= 8; // segments have no hop-by-hop header with the length
	if (each >= p->length)
		return;
	u32 data = p->length - each;
	w->packets = gso_segs ? gso_segs : (data + gso_size - 1) / gso_size;
	w->bytes = data + w->packets * each;
	if (w->packets > 1)
		w->longest = each + gso_size;
}

// add2 adds to two adjacent 32-bit values.
inline void add2(u32 *first, u32 n, u32 second) {
	__sync_fetch_and_add((u64 *)first, (u64)second << 32 | n);
}

// add counts a packet, or its segments. Each segment has the flags of the packet, except FIN, which
// only the last one has.
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

// whole reports whether a parsed packet has all its headers, by the rules of packet.IP.Parse.
inline bool whole(const struct headers *p) { return !p->cut && (p->key.v6 || p->length >= p->l4); }

// search is the state of a search for the string in the payload of a frame.
struct search {
	struct __sk_buff *skb;
	u32 at, end, final;
	u8 state;
};

// search_chunk searches the next bytes of the payload. It returns true at the end of the payload.
static long search_chunk(u32 n, struct search *s) {
	u8 chunk[CHUNK] = {};
	u32 zero = 0;
	u8 *next = bpf_map_lookup_elem(&automaton, &zero);
	if (!next || s->at >= s->end)
		return true;
	u32 last = s->end - s->at - 1; // the last byte of the chunk
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

// contains reports whether the payload of a packet contains the string, whose length is given.
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

// same reports whether an entry has the key of the packet. The last fields of the packet's key were
// written one by one just now, so they are read one by one: a processor that reads them as one word
// waits until the writes have reached its cache.
inline bool same(const struct key *entry, const struct key *k) {
	const u64 *x = (const u64 *)entry, *y = (const u64 *)k;
	u64 last = (u64)k->v6 << 40 | (u64)k->proto << 32 | (u32)k->dport << 16 | k->sport;
	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ last));
}

inline struct flow_entry *entry_of(u32 cell) {
	u32 index = cell & index_mask;
	return bpf_map_lookup_elem(&entries, &index);
}

// tag_of returns, from the hash of a flow, the bits that a cell has besides the index.
inline u32 tag_of(u64 h) { return ((u32)(h >> 32) | 1u << 31) & ~index_mask; }

// bucket_of returns one of the buckets of a flow. The first choices are at the begin of the table,
// so that few flows occupy few pages of memory.
inline struct bucket *bucket_of(u64 h, u32 choice) {
	u32 at = (choice ? step(h, choice) >> 20 : h & (FIRST - 1)) & bucket_mask;
	return bpf_map_lookup_elem(&buckets, &at);
}

// hit returns the cell of a bucket that has a tag. The result is valid only if n, the number of
// such cells, becomes 1. It has no branches, because the processor would predict them wrongly.
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

// claim_in puts a cell into a bucket, unless the bucket has a cell of the same flow, which another
// processor put there. It returns the flow's cell, or 0 if the bucket is full. With cell 0 it only
// looks for the flow's cell.
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

// claim calls claim_in for the buckets of a flow, until one has its cell.
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

// begin adds a flow. It returns the flow's cell, or the counter that says why the flow has none.
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
	if (found != cell) // another processor added the flow, or no room is left:
		e->state = RETURNED; // the agent frees index and mapping
	else
		__sync_val_compare_and_swap(&c->cells[h & (NEAR - 1)], 0, cell);
	bpf_map_push_elem(&begun, &n, 0);
	return found ? found : UNTRACKED;
}

inline struct flow_slot *slot_of(u32 cell, u64 epoch) {
	u32 at = (u32)(epoch & (generations - 1)) * flow_limit + (cell & index_mask);
	return bpf_map_lookup_elem(&outgoing, &at);
}

// candidate returns the cell of a bucket that has the tag of a flow. It returns 0 if there is none, or
// more than one.
inline u32 candidate(u64 h, u32 choice) {
	struct bucket *b = bucket_of(h, choice);
	u64 n;
	if (!b)
		return 0; // unreachable
	u32 cell = hit(b, tag_of(h), &n);
	return n == 1 ? cell : 0;
}

// checked returns a cell if it is that of the flow, or 0.
inline u32 checked(const struct key *k, u64 now, u32 cell) {
	if (!cell)
		return 0;
	struct flow_entry *e = entry_of(cell);
	struct flow_slot *s = slot_of(cell, now);
	if (s)
		fetch(s); // the slot arrives while the entry is read
	return e && same(&e->key, k) ? cell : 0;
}

// find_other finds a flow that is outside of its first bucket, or adds it. It returns the flow's
// cell, or the counter that says why the flow has none.
part u32 find_other(struct control_block *c, const struct key *k, u64 now, u64 h) {
	u32 cell = 0;
	if (!c || !k)
		return UNTRACKED; // unreachable
	if (*(volatile u32 *)&c->overflow)
		cell = checked(k, now, candidate(h, 1));
	if (!cell)
		cell = claim(c, k, h, 0);
	return cell ? cell : begin(c, k, now, h);
}

// find returns the cell of a flow, and adds the flow if it is new. If the flow has no cell, it
// returns the counter that says why.
inline u32 find(struct control_block *c, const struct key *k, u64 now) {
	u64 h = hash(hash_seed, k);
	u32 cell = *(volatile u32 *)&c->cells[h & (NEAR - 1)];
	if ((cell ^ tag_of(h)) & ~index_mask)
		cell = candidate(h, 0);
	cell = checked(k, now, cell);
	return likely(cell) ? cell : find_other(c, k, now, h);
}

// body_size returns the length of a header without the EtherType of the payload.
inline u32 body_size(void) { return 6 + 2 * slots_per_flow + 4 * extremes; }
inline u32 option_size(bool v6) { return v6 ? (4 + body_size() + 7) & ~7 : (2 + body_size() + 3) & ~3; }
inline u32 geneve_data(void) { return (body_size() + 3) & ~3; }
inline u32 tunnel_size(bool v6) { return (v6 ? 40 : 20) + UDP_AND_GENEVE + 4 + geneve_data(); }

// carrier_size returns the length that a carrier adds to an IP packet.
inline u32 carrier_size(u32 kind, bool v6) {
	return kind == SHIM ? body_size() + 2 : kind == OPTION ? option_size(v6) : tunnel_size(v6);
}

// body is the content of a header.
struct body {
	u64 head; // epoch, host index, hops and first slot, in the byte order of the packet
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

// sum_body adds up the words that put_body writes. It reads the registers and not the packet: the
// processor would wait for the packet, which was written in pieces of other sizes.
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

// replaced returns the checksum of data in which words were replaced. n is the sum of the
// complements of the old words and of the new words (RFC 1624).
inline u16 replaced(u16 checksum, u64 n) { return ~updated(~checksum, n, 0); }

// sum adds up the words of a header. Its length is a multiple of 4, at most 64 bytes.
inline u64 sum(const u8 *b, u32 size) {
	u64 n = 0;
	for (u32 i = 0; i < 64; i += 4) {
		if (i < size)
			n += *(u32 *)(b + i);
	}
	return n;
}

// tag is the VLAN tag of a frame that has a tag in its data.
struct tag {
	u16 proto, control;
	bool taken;
};

// untag takes the first VLAN tag off a frame, so that its data have no tag: a second tag stays
// outside of the data. It returns false if the kernel does not support the type of the tag.
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

// insert_shim makes room by moving the MAC addresses. Segmentation repeats the shim, as a part of
// the link layer.
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

// insert_option makes room behind the fixed IP header. The segments keep their size.
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
		if (size >= used + 2) { // one byte of padding is Pad1, which is zero
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
	if (used & 3) { // the length of d slots is even
		end_of_it = NO_OPERATION | NO_OPERATION << 8;
		*(u16 *)(o + used) = end_of_it;
	}
	u64 n = (u16)~first + (u64)(u16)~length + kind + end_of_it + sum_body(b);
	first += size / 4;
	if (length) // a super-packet above 64 KB has the length 0
		length = bpf_htons(bpf_ntohs(length) + size);
	*(u16 *)ip = first;
	*(u16 *)(ip + 2) = length;
	*(u16 *)(ip + 10) = replaced(*(u16 *)(ip + 10), n + first + length);
	return true;
}

// insert_tunnel puts the packet into Geneve. The outer addresses are those of the packet.
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

// insert puts a header into a packet and returns COUNTED. It returns NO_ROOM if the packet is
// unchanged, or MALFORMED if it can no longer be sent, which does not happen.
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

// insert_fast does the same as insert for the most frequent carrier and packets, with less code.
inline u32 insert_fast(struct __sk_buff *skb, const struct headers *p, const struct body *b) {
	if (unlikely(carrier != OPTION || p->ip != LINK || p->key.v6))
		return insert(skb, p, b);
	return insert_option(skb, p, b) ? COUNTED : NO_ROOM;
}

// fits reports whether a packet has room for a header. Super-packets above 64 KB have 0 in their
// length fields.
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

// options is the state of a search for the MSS among the options of a TCP header.
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

// reduce_mss lowers the MSS in a TCP header with the flag SYN to most, so that the segments of the
// connection leave room for a header. at is the offset of the TCP header, whose length is given.
part u32 reduce_mss(struct __sk_buff *skb, u32 at, u32 length, u32 most) {
	u32 size = length - 20;
	asm volatile("" : "+r"(size)); // the verifier derives the range of what it checks from the mask
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
	if (i & 1) { // the checksum adds words of two bytes
		from = old;
		to = most;
	}
	return bpf_l4_csum_replace(skb, at + 16, from, to, 2);
}

// largest_packet returns the length of the longest IP packet to an address with a lease.
inline u32 largest_packet(const struct control_block *c, const struct lease *l, u64 clock) {
	return l->until > clock && l->max_length < c->mtu ? l->max_length : c->mtu;
}

// follow_mss lowers the MSS in a SYN between this host and a host with a lease.
inline void follow_mss(struct __sk_buff *skb, const struct headers *p, u32 most) {
	u32 less = carrier_size(carrier, p->key.v6) + (p->key.v6 ? 60 : 40);
	if (most < MAX_LENGTH && most > less)
		reduce_mss(skb, p->ip + p->l4, p->payload - p->l4, most - less);
}

// message is the begin of the data of a probe or reply.
struct message {
	u64 magic;
	u8 kind, flags, rest[MESSAGE - 10];
};

// read_message copies the message of a probe or reply at an offset. It returns false for all other
// packets.
part bool read_message(struct __sk_buff *skb, u32 at, struct message *m) {
	return m && !bpf_skb_load_bytes(skb, at, m, MESSAGE) && m->magic == 0x31424f52504b534e && // NSKPROB1
	       (m->kind == KIND_PROBE || m->kind == KIND_REPLY);
}

inline bool to_probes(const struct headers *p) {
	return p->key.proto == UDP && p->key.dport == PROBE_PORT && !p->later;
}

#include "queries.h"

// follow_differences updates the extremes of a flow. The caller holds the lock of the flow.
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

// follow_flags ends or reopens a flow by the flags of a TCP packet.
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
	struct lease l = read_lease(c, e->lease);
	struct flow_slot *s = slot_of(cell, now);
	if (!s)
		return PASS; // unreachable
	u64 slots = e->slots;
	u32 epoch = now - c->base + 1, most = largest_packet(c, &l, clock), match = c->match;
	if (unlikely(p.flags & (FIN | SYN | RST))) {
		follow_flags(e, index, p.flags);
		if (p.flags & SYN && !keep_mss)
			follow_mss(skb, &p, most);
	}
	bool asked = c->queries && take_sample(skb, &p, &w, now, index);
	bool matched = match && contains(skb, &p, match);
	b.head |= (u64)index << 24 | (slots & 0xffff);
	b.slots = slots;
	// Differences and the string belong to one packet, so they need packets that are not segmented
	// later.
	u32 why = COUNTED;
	if (unlikely(l.until <= clock))
		why = NO_LEASE;
	else if ((w.packets > 1 && (extremes || match)) || !fits(skb, &p, &w, most))
		why = NO_ROOM;
	if (extremes) {
		// The header contains the differences, so the flow is counted before the header is
		// inserted. Room for the header was checked; the kernel may still refuse to insert it.
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
		if (unlikely(s->epoch != epoch)) // insert gives the slot time to arrive
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
	if (unlikely(l.used != (u32)(clock >> 30)))
		use_lease(c, e->lease, clock >> 30);
	if (asked)
		ask(skb);
	return PASS;
}

// page_of returns the number, from 1, of the page of incoming flows that belongs to a cell of the
// directory. It returns 0 if the epoch has no page left.
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
		bool gone = used && (s32)((u32)(used >> 32) - (u32)epoch) > 0; // a later epoch uses the pages
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

// claim_place returns the place of a cell in a directory with fewer places than cells. A cell keeps
// its place until the generation has another epoch. Without a place the result is beyond the end.
part u32 claim_place(u64 epoch, u32 cell) {
	u64 key = epoch << 32 | (cell + 1), h = (cell * 0x9e3779b97f4a7c15) >> 32;
	for (u32 i = 0; i < CLAIMS; i++) {
		u32 at = (u32)(epoch & (generations - 1)) * places + ((h + i) & (places - 1));
		u64 *claim = bpf_map_lookup_elem(&claims, &at);
		if (!claim)
			break;
		u64 old = *(volatile u64 *)claim;
		if (old == key)
			return at;
		if (old && (s32)((u32)(old >> 32) - (u32)epoch) >= 0)
			continue; // of another cell, or of a later epoch
		u64 found = __sync_val_compare_and_swap(claim, old, key);
		if (found == old || found == key)
			return at;
	}
	return ~0u;
}

inline u32 page_of(struct control_block *c, u64 epoch, u32 cell) {
	struct near_page *n = &c->near_pages[cell * 0x9e3779b1 >> 28 & (NEAR_PAGES - 1)];
	u64 key = epoch << 32 | cell, page = *(volatile u64 *)&n->page, old = *(volatile u64 *)&n->key;
	if (old == key && page && *(volatile u64 *)&n->check == step(key, page))
		return page;
	u32 at = (u32)(epoch & (generations - 1)) * places + cell;
	if (places < host_limit * pages_per_host)
		at = claim_place(epoch, cell);
	u64 *d = bpf_map_lookup_elem(&directory, &at);
	if (!d)
		return 0;
	u64 value = *(volatile u64 *)d;
	page = value >> 32 == (u32)epoch && (u32)value ? (u32)value : fresh_page(c, epoch, cell, d);
	if ((s32)((u32)epoch - (u32)(old >> 32)) > 0) {
		*(volatile u64 *)&n->key = key;
		*(volatile u64 *)&n->page = page;
		*(volatile u64 *)&n->check = step(key, page);
	}
	return page;
}

// locate finds the slot of an incoming packet and returns COUNTED, or the counter that says why
// there is none, and the epoch of the packet. source is the host of its source address plus one.
inline u32 locate(struct control_block *c, const struct wire *w, const struct body *b, u32 source,
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
		return UNKNOWN_EPOCH; // the epoch would be before epoch 0
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
	u32 page = page_of(c, e, (source - 1) * pages_per_host + index / PAGE);
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

// receive counts an incoming packet, without its header, in slot number at. It returns the counter
// that says why the packet is not counted.
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

// gather moves the first bytes of a packet into one piece of memory. The data of a TCP segment stay
// outside of it, because only then the kernel joins segments in the queue of a socket. Separate
// segments take half as much memory again, and a receiver whose buffer gets too small discards data
// that it has allowed the sender to send, together with acknowledgments that both ends may wait
// for.
inline void gather(struct __sk_buff *skb, u32 size) {
	u32 have = skb->data_end - skb->data, want = skb->len < size ? skb->len : size;
	if (unlikely(have < want))
		bpf_skb_pull_data(skb, want);
}

// carrier_end returns how many bytes of a packet have to be read to find a carrier, counted from
// the IP header or shim.
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

// find_carrier returns the carrier of a parsed packet and reads its header. It returns NONE without
// a carrier, and BROKEN if the packet ends before the carrier does.
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

// retype changes the EtherType of a frame whose data have no VLAN tag. It adds and removes a VLAN
// tag, because the kernel reads the EtherType again when a tag is removed.
inline bool retype(struct __sk_buff *skb, u16 type) {
	bool tagged = skb->vlan_present;
	if (!tagged && bpf_skb_vlan_push(skb, bpf_htons(ETH_VLAN), 0))
		return false;
	if (bpf_skb_vlan_push(skb, bpf_htons(ETH_VLAN), 0)) // puts the former tag into the data
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

// strip_option removes an option. Before that, it writes the header without the option, and an
// option that keeps the sum of all bytes. So a checksum of the whole packet by the device stays
// valid when adjust_room subtracts the bytes that it removes.
inline bool strip_option(struct __sk_buff *skb, bool v6) {
	u32 size = option_size(v6);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u8 *ip = data + LINK, *o = ip + (v6 ? 40 : 20);
	if ((void *)o + size > end)
		return false;
	u8 next = o[0];
	u64 rest = sum(o, size); // sum of what changes: the option, length and first word
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
	if (v6) // IPv4 needs no correction: its header checksum makes up for all changes
		*(u16 *)o = updated(0, rest, 0);
	else
		*(u16 *)(ip + 10) = updated(*(u16 *)(ip + 10), rest, 0xffff);
	return !bpf_skb_adjust_room(skb, -(s32)size, BPF_ADJ_ROOM_NET,
				    BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET);
}

// strip_tunnel copies the TTL of the outer packet to the inner one. The switches have decremented
// only the outer TTL.
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

// strip removes a carrier; p are the outer headers. It returns false if the packet cannot be
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

// hand_over passes a probe or reply to the agent.
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
	// The option of most packets is removed only after their slot was requested from memory, so
	// that the processor need not wait for the slot. Until then, offsets in the packet include the
	// option. Probes, and packets of which more than the headers is read or changed, lose the
	// option at once.
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
	if (unlikely(syn || probe)) {
		source = find_host(p.key.src, p.key.v6);
		if (source && source->host != own_host)
			own = find_host(p.key.dst, p.key.v6);
		if (own && own->host != own_host)
			own = 0;
	}
	if (unlikely(probe && own)) {
		struct message m = {};
		if (read_message(skb, p.ip + p.payload, &m)) {
			hand_over(&p, &m, carried, b.head >> 16 & 0x7f);
			return SHOT;
		}
	}
	if (unlikely(syn && own)) {
		struct lease l = read_lease(c, source->number);
		follow_mss(skb, &p, largest_packet(c, &l, clock));
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
	u32 why = locate(c, &w, &b, host_of(c, &p.key), clock, now, &epoch, &at, &s);
	if (later && !strip_option(skb, false))
		return SHOT; // unreachable
	if (likely(s))
		why = receive(c, skb, &p, &w, &b, epoch, at, s);
	if (unlikely(why != COUNTED))
		count(epoch, why, w.packets);
	return PASS;
}

char _license[] SEC("license") = "Apache-2.0";

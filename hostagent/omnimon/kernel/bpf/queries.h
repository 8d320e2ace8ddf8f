// SPDX-License-Identifier: Apache-2.0

// Queries on the packets that a host sends. Program egress calls take_sample, which copies the
// fields that queries read into a sample. At its end it calls ask, which passes control to a
// program that the agent generates from the queries (compile_linux.go). The generated program
// counts the sample in maps of its own. Packets are copied to the agent only if they may match a
// query that cannot be compiled, such as one that reads the payload.
//
// The agent has two sets of queries: the set in force, and the set that begins with a later epoch.
// A set has two generations of maps: while it counts an epoch in one, the agent reads the other.

#ifndef NETSKETCH_QUERIES_H
#define NETSKETCH_QUERIES_H

// Programs in map queries: one for each set and generation, which pass control to the next one, and
// copy.
enum {
	QUERY_SETS = 2,
	QUERY_GENERATIONS = 2,
	QUERY_PROGRAMS = 16,
	COPY = QUERY_SETS * QUERY_GENERATIONS * QUERY_PROGRAMS,
};

// Bits of query_set.needs.
enum {
	NEED_COMPILED = 1, // the set has queries that the generated program runs
	NEED_DNS = 2,      // queries read fields of DNS
	NEED_FLOWLET = 4,  // queries read the number of the flowlet
	NEED_DATA = 8,     // queries read the payload, in packets that are copied
};

enum {
	CWR = 0x80, // congestion window reduced
	DNS_PORT = 53,
	DNS_HEADER = 12,  // bytes of the header
	DNS_LABEL = 63,   // bytes of the longest label
	DNS_LABELS = 127, // labels of a name, at most
	MAX_DATA = 16383, // bytes of a payload that are copied, at most
	MAX_PIECES = 3,
};

volatile const u8 tail_calls; // the kernel supports tail calls in programs with functions

// piece describes equal packets: a packet, or the first, the middle or the last segments of a
// super-packet.
struct piece {
	u32 length; // length of the IP packet
	u32 packets;
	u8 flags, unused[7];
};

// sample has the fields of a packet that queries read. The compiler of queries depends on its
// layout.
struct sample {
	u64 epoch;
	struct key key;
	u32 flowlet;
	u32 data;    // bytes of payload, which end the frame
	u16 segment; // bytes of data in each segment but the last; 0 without segments
	u16 window;
	u16 dns_type;
	u8 dns_response, ttl;
	u8 ready; // whether the generation is free for the epoch
	u8 copy;  // whether a query of the generated program requests a copy
	u8 set, needs;
	u32 pieces;
	struct piece piece[MAX_PIECES];
};

struct copied {
	struct sample sample;
	u8 payload[MAX_DATA + 1];
};

// flowlet has the time of the newest packet of a flow, and the number of its flowlet.
struct flowlet {
	u64 last; // nanoseconds of CLOCK_MONOTONIC
	u64 number;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct copied);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, COPY + 1);
	__type(key, u32);
	__type(value, u32);
} queries SEC(".maps");

// copies holds the packets for the queries that the agent runs: a sample and the payload of each.
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} copies SEC(".maps");

// flowlets holds the flowlets, by host index.
SHARED_ARRAY(flowlets, struct flowlet);

inline struct copied *scratch_of(void) {
	u32 zero = 0;
	return bpf_map_lookup_elem(&scratch, &zero);
}

// dns returns the type of the first question of a DNS message in its lower 16 bits, and sets bit 16
// for a response. It returns 0 if the data, whose size is given, are no such message.
part u32 dns(struct __sk_buff *skb, u32 at, u32 size) {
	u8 b[DNS_HEADER], type[2];
	if (size < DNS_HEADER || bpf_skb_load_bytes(skb, at, b, DNS_HEADER))
		return 0;
	u32 response = b[2] >> 7 << 16, end = at + size;
	if (!(b[4] | b[5])) // no question
		return response;
	at += DNS_HEADER;
	u8 label = 0;
	for (u32 i = 0; i <= DNS_LABELS; i++) {
		if (at >= end || bpf_skb_load_bytes(skb, at, &label, 1))
			return response;
		if (!label || label > DNS_LABEL || at + label >= end)
			break;
		at += label + 1;
	}
	if (label || at + 3 > end || bpf_skb_load_bytes(skb, at + 1, type, 2))
		return response;
	return response | (u32)type[0] << 8 | type[1];
}

// flowlet_of returns the number of the flowlet of a packet that is sent now. A packet begins the
// next flowlet if it is sent more than gap nanoseconds after the previous packet of its flow.
part u32 flowlet_of(u32 index, u64 gap) {
	struct lock *l = lock_of(index);
	struct flowlet *f = bpf_map_lookup_elem(&flowlets, &index);
	if (!l || !f)
		return 0; // unreachable
	u64 now = bpf_ktime_get_ns();
	bpf_spin_lock(&l->lock);
	if (f->last && (s64)(now - f->last) > (s64)gap)
		f->number++;
	if ((s64)(now - f->last) > 0)
		f->last = now;
	u32 number = f->number;
	bpf_spin_unlock(&l->lock);
	return number;
}

// own reserves a generation for an epoch. It returns false if the generation has results of another
// epoch.
inline bool own(u64 *owner, u64 epoch) {
	u64 found = *(volatile u64 *)owner;
	if (!found)
		found = __sync_val_compare_and_swap(owner, 0, epoch + 1);
	return !found || found == epoch + 1;
}

// divide sets the pieces of a sample.
inline void divide(struct sample *s, const struct headers *p, const struct wire *w) {
	u32 n = w->packets, before = (n - 1) * w->longest;
	s->pieces = 1;
	s->piece[0].length = w->longest;
	s->piece[0].packets = n;
	s->piece[0].flags = p->flags;
	if (n < 2 || before >= w->bytes)
		return;
	s->piece[0].packets = 1;
	u8 flags = p->flags & ~(FIN | PSH | CWR); // only one segment has these flags
	s->pieces = 2;
	s->piece[0].flags = flags | (p->flags & CWR);
	u32 last = n > 2;
	if (last) {
		s->pieces = 3;
		s->piece[1].length = w->longest;
		s->piece[1].packets = n - 2;
		s->piece[1].flags = flags;
	}
	s->piece[1 + last].length = w->bytes - before;
	s->piece[1 + last].packets = 1;
	s->piece[1 + last].flags = p->flags & ~CWR;
}

// take_sample copies the fields of a packet into the sample of this processor. index is the index
// of its flow. It returns false if no query runs in the epoch.
part bool take_sample(struct __sk_buff *skb, const struct headers *p, const struct wire *w, u64 now, u32 index) {
	struct control_block *c = state();
	struct copied *d = scratch_of();
	if (!c || !d || !p || !w)
		return false; // unreachable
	u32 n = now >= c->query_change ? c->query_after : c->query_before;
	if (!n)
		return false;
	struct query_set *q = &c->query_sets[n = (n - 1) & (QUERY_SETS - 1)];
	struct sample *s = &d->sample;
	u32 at = p->ip + p->payload, needs = q->needs, data = at < skb->len ? skb->len - at : 0, question = 0;
	s->epoch = now;
	s->key = p->key;
	s->set = n;
	s->needs = needs;
	s->data = data;
	s->segment = skb->gso_size;
	s->window = p->window;
	s->ttl = p->ttl;
	s->copy = 0;
	divide(s, p, w);
	bool seen = true;
	if (needs & NEED_DNS && p->key.proto == UDP && (p->key.sport == DNS_PORT || p->key.dport == DNS_PORT) && !p->later) {
		seen = w->packets == 1; // each segment would be a message
		question = dns(skb, at, data);
	}
	s->dns_type = question;
	s->dns_response = question >> 16;
	s->flowlet = needs & NEED_FLOWLET ? flowlet_of(index, q->gap) : 0;
	s->ready = own(&q->owners[now & (QUERY_GENERATIONS - 1)], now);
	if (needs & NEED_COMPILED && !(s->ready && seen))
		count(now, UNCOUNTED, w->packets);
	return true;
}

// copy_sample copies the sample of a packet, and its payload, to map copies for the agent.
inline void copy_sample(struct __sk_buff *skb) {
	struct copied *d = scratch_of();
	if (!d)
		return; // unreachable
	u32 size = d->sample.needs & NEED_DATA ? d->sample.data : 0, packets = 0;
	for (u32 i = 0; i < MAX_PIECES; i++)
		packets += i < d->sample.pieces ? d->sample.piece[i].packets : 0;
	u32 at = skb->len - size;
	if (size > MAX_DATA || (size && bpf_skb_load_bytes(skb, at, d->payload, size))) {
		count(d->sample.epoch, UNREAD, packets);
		return;
	}
	// The agent reads the map periodically, so it is not woken up.
	if (bpf_ringbuf_output(&copies, d, sizeof(d->sample) + size, BPF_RB_NO_WAKEUP))
		count(d->sample.epoch, UNREAD, packets);
}

// ask runs the queries on the sample of a packet. If there is a generated program, ask does not
// return.
inline void ask(struct __sk_buff *skb) {
	struct copied *d = scratch_of();
	if (!d)
		return; // unreachable
	u32 generation = d->sample.set * QUERY_GENERATIONS + (d->sample.epoch & (QUERY_GENERATIONS - 1));
	if (tail_calls)
		bpf_tail_call(skb, &queries, generation * QUERY_PROGRAMS);
	copy_sample(skb);
}

SEC("tc")
int copy(struct __sk_buff *skb) {
	copy_sample(skb);
	return PASS;
}

#endif

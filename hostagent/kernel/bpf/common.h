// SPDX-License-Identifier: Apache-2.0

// What the programs of host roles in the kernel share: types, the hash of flows and checksums.
// packet.h has the parser of packets.

#ifndef NETSKETCH_COMMON_H
#define NETSKETCH_COMMON_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define inline __attribute__((always_inline)) static __inline__
#define part __attribute__((noinline)) // the verifier checks it by itself

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;

enum {
	ETH_IPV4 = 0x0800,
	ETH_IPV6 = 0x86dd,
	ETH_VLAN = 0x8100,
	ETH_QINQ = 0x88a8,
	ETH_QINQ_OLD = 0x9100,
	TCP = 6,
	UDP = 17,
	FRAGMENT = 44,
};

inline bool is_tag(u16 type) { return type == ETH_VLAN || type == ETH_QINQ || type == ETH_QINQ_OLD; }

// step is a step of the hash of flows: flow.Key.Hash.
inline u64 step(u64 h, u64 word) {
	h = (h ^ word) * 0x9e3779b97f4a7c15;
	return h ^ h >> 32;
}

// updated returns a checksum to which n is added. 0 and 0xffff are the same number in a checksum;
// the result is never the form that never names.
inline u16 updated(u16 checksum, u64 n, u16 never) {
	u64 v = n + checksum;
	v = (v >> 32) + (u32)v;
	v = (v >> 32) + (u32)v;
	v = (v >> 16) + (v & 0xffff);
	v = (v >> 16) + (v & 0xffff);
	v = (v >> 16) + (v & 0xffff);
	if ((u16)v == never)
		v = ~v;
	return v;
}

#ifdef CRC_BYTES
// Tables of CRC-32, for CRC_BYTES bytes at a time; constant while the program is loaded.
volatile const u32 crc_tables[CRC_BYTES * 256];

inline u32 crc1(u32 crc, u8 byte) { return crc >> 8 ^ crc_tables[(u8)crc ^ byte]; }

inline u32 crc4(u32 crc, u32 word) {
	u32 x = crc ^ word;
	return crc_tables[768 + (x & 255)] ^ crc_tables[512 + (x >> 8 & 255)] ^ crc_tables[256 + (x >> 16 & 255)] ^
	       crc_tables[x >> 24];
}
#endif

#endif

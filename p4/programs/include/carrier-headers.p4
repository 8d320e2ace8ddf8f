// SPDX-License-Identifier: Apache-2.0
// OmniMon's header and its three carriers: docs/omnimon-p4.md. Every program finds the packet
// behind a carrier, forwards it and counts it as the host sent it; omnimon.p4 reads the header.
//
//   NS_OMNIMON_ETHERTYPE       EtherType of the shim
//   NS_OMNIMON_SLOTS_PER_FLOW  slot numbers in the header, 1 to 4
//   NS_OMNIMON_DIFFERENCES     differences of maxima and minima in the header, 0 to 4

#ifndef NETSKETCH_CARRIER_HEADERS_P4
#define NETSKETCH_CARRIER_HEADERS_P4

#ifndef NS_OMNIMON_ETHERTYPE
#define NS_OMNIMON_ETHERTYPE 0x88b5
#endif
#ifndef NS_OMNIMON_SLOTS_PER_FLOW
#define NS_OMNIMON_SLOTS_PER_FLOW 2
#endif
#ifndef NS_OMNIMON_DIFFERENCES
#define NS_OMNIMON_DIFFERENCES 0
#endif

#if NS_OMNIMON_SLOTS_PER_FLOW < 1 || NS_OMNIMON_SLOTS_PER_FLOW > 4
#error NS_OMNIMON_SLOTS_PER_FLOW must be 1 to 4
#endif
#if NS_OMNIMON_DIFFERENCES < 0 || NS_OMNIMON_DIFFERENCES > 4
#error NS_OMNIMON_DIFFERENCES must be 0 to 4
#endif

#define NS_OMNIMON_BYTES (6 + 2 * NS_OMNIMON_SLOTS_PER_FLOW + 4 * NS_OMNIMON_DIFFERENCES)

// The IPv4 option: type, length and OmniMon's header, in whole words. Hosts fill the last word with
// No-Operation options.
#define NS_CARRIER_IPV4_TYPE 0x9e
#define NS_CARRIER_IPV4_LENGTH (2 + NS_OMNIMON_BYTES)
#define NS_CARRIER_IPV4_WORDS ((NS_CARRIER_IPV4_LENGTH + 3) / 4)

// The IPv6 destination options header with one option and padding.
#define NS_CARRIER_IPV6_TYPE 0x3e
#define NS_CARRIER_IPV6_BYTES ((4 + NS_OMNIMON_BYTES + 7) / 8 * 8)
#define NS_CARRIER_IPV6_PAD (NS_CARRIER_IPV6_BYTES - 4 - NS_OMNIMON_BYTES)

// The tunnel: UDP and Geneve with one option, whose data are OmniMon's header and padding.
#define NS_CARRIER_TUNNEL_PORT 6081
#define NS_CARRIER_TUNNEL_OPTION 0xff5e01 // class and type
#define NS_CARRIER_TUNNEL_WORDS ((NS_OMNIMON_BYTES + 3) / 4)
#define NS_CARRIER_TUNNEL_PAD (4 * NS_CARRIER_TUNNEL_WORDS - NS_OMNIMON_BYTES)
#define NS_CARRIER_TUNNEL_BYTES (20 + 4 * NS_CARRIER_TUNNEL_WORDS)

header shim_t {
#include "omnimon-fields.p4"
    bit<16> ether_type; // EtherType of the payload
}

header ipv4_carrier_t {
    bit<8> type;
    bit<8> length;
#include "omnimon-fields.p4"
}

header ipv6_carrier_t {
    bit<8> next_header;
    bit<8> length; // length of the header in units of 8 bytes, without the first 8 bytes
    bit<8> type;
    bit<8> option_length;
#include "omnimon-fields.p4"
#if NS_CARRIER_IPV6_PAD > 0
    bit<(8 * NS_CARRIER_IPV6_PAD)> padding;
#endif
}

// The UDP header after its ports, and Geneve with its option.
header tunnel_t {
    bit<16> udp_length;
    bit<16> checksum;
    bit<16> geneve; // version, length of the options in words, flags
    bit<16> ether_type;
    bit<32> network;
    bit<24> option_type;
    bit<8>  option_words;
#include "omnimon-fields.p4"
#if NS_CARRIER_TUNNEL_PAD > 0
    bit<(8 * NS_CARRIER_TUNNEL_PAD)> padding;
#endif
}

#endif

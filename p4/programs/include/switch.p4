// SPDX-License-Identifier: Apache-2.0
// A switch: forwarding, read-out, and the algorithms that a program selects.
//
// A program defines a flag and the sizes for each algorithm and includes this file. Each algorithm
// is a control with one instance here. It processes a packet of traffic if packet_in is invalid,
// and a read-out request if packet_in is valid.
//
//   NS_WITH_UNIVMON_SRC, _DST, _5T, _PAIR, _SERVICE, _PROTOCOL
//       UnivMon by source, destination, 5-tuple, source and destination, destination and its port,
//       and protocol, with NS_UNIVMON_SRC_LEVELS, _ROWS, _COLUMNS, _SLOTS and so on
//   NS_WITH_CHAMELEMON
//       ChameleMon's edge switch, with the sizes that chamelemon.p4 lists
//   NS_WITH_OMNIMON
//       OmniMon's switch, with the sizes that omnimon.p4 lists; no other algorithm, because packets
//       select the bank
//   NS_WITH_SKETCHINT
//       INT source, transit and sink: sketchint.p4; no other algorithm
//   NS_WITH_SKETCHINT_TOWERS
//       with NS_WITH_SKETCHINT: towers at the sink, with the sizes that sketchint-towers.p4 lists
//   NS_WITH_LIGHTGUARDIAN
//       LightGuardian's switch, with the sizes that lightguardian.p4 lists; no other algorithm
//   NS_WITH_OWN
//       an algorithm of one's own, beside others or alone: the control OwnIngress in NS_OWN, a
//       file of the program's directory, and with NS_WITH_OWN_EGRESS the control OwnEgress. The
//       fields of meta.own are NS_OWN_FIELDS.
//
// Read-out numbers of objects: 1 and 2 univmon_src, 3 and 4 univmon_dst, 5 and 6 univmon_5t,
// 7 to 12 chamelemon, 13 and 14 omnimon, 15 and 16 sketchint, 17 and 18 univmon_pair, 19 and 20
// univmon_service, 21 and 22 univmon_protocol, 23 unparsed. 128 and above are free for own.p4.

#if defined(NS_WITH_UNIVMON_SRC) || defined(NS_WITH_UNIVMON_DST) || \
    defined(NS_WITH_UNIVMON_5T) || defined(NS_WITH_UNIVMON_PAIR) || \
    defined(NS_WITH_UNIVMON_SERVICE) || defined(NS_WITH_UNIVMON_PROTOCOL)
#define NS_WITH_UNIVMON
#define NS_WITH_ENCAPSULATION
#endif

#include "headers.p4"
#include "parser.p4"
#ifndef NS_WITH_OMNIMON
#include "bank.p4"
#endif
#include "readout.p4"
#include "forwarding.p4"

#ifdef NS_WITH_UNIVMON
#include "duties.p4"
#endif

#ifdef NS_WITH_UNIVMON_SRC
#define NS_WITH_SRC_HASH
#define UM_CONTROL UnivMonSrc
#define UM_COUNTED "ingress.univmon_src.counted"
#define UM_KEY NS_KEY_SRC
#define UM_OBJECT 1
#define UM_LEVELS NS_UNIVMON_SRC_LEVELS
#define UM_ROWS NS_UNIVMON_SRC_ROWS
#define UM_COLUMNS NS_UNIVMON_SRC_COLUMNS
#define UM_SLOTS NS_UNIVMON_SRC_SLOTS
#include "univmon.p4"
#endif

#ifdef NS_WITH_UNIVMON_DST
#define NS_WITH_DST_HASH
#define UM_CONTROL UnivMonDst
#define UM_COUNTED "ingress.univmon_dst.counted"
#define UM_KEY NS_KEY_DST
#define UM_OBJECT 3
#define UM_LEVELS NS_UNIVMON_DST_LEVELS
#define UM_ROWS NS_UNIVMON_DST_ROWS
#define UM_COLUMNS NS_UNIVMON_DST_COLUMNS
#define UM_SLOTS NS_UNIVMON_DST_SLOTS
#include "univmon.p4"
#endif

#ifdef NS_WITH_UNIVMON_5T
#define UM_CONTROL UnivMon5t
#define UM_COUNTED "ingress.univmon_5t.counted"
#define UM_KEY NS_KEY_FIVE_TUPLE
#define UM_OBJECT 5
#define UM_LEVELS NS_UNIVMON_5T_LEVELS
#define UM_ROWS NS_UNIVMON_5T_ROWS
#define UM_COLUMNS NS_UNIVMON_5T_COLUMNS
#define UM_SLOTS NS_UNIVMON_5T_SLOTS
#include "univmon.p4"
#endif

#ifdef NS_WITH_UNIVMON_PAIR
#define NS_WITH_PAIR_HASH
#define UM_CONTROL UnivMonPair
#define UM_COUNTED "ingress.univmon_pair.counted"
#define UM_KEY NS_KEY_PAIR
#define UM_OBJECT 17
#define UM_LEVELS NS_UNIVMON_PAIR_LEVELS
#define UM_ROWS NS_UNIVMON_PAIR_ROWS
#define UM_COLUMNS NS_UNIVMON_PAIR_COLUMNS
#define UM_SLOTS NS_UNIVMON_PAIR_SLOTS
#include "univmon.p4"
#endif

#ifdef NS_WITH_UNIVMON_SERVICE
#define NS_WITH_SERVICE_HASH
#define UM_CONTROL UnivMonService
#define UM_COUNTED "ingress.univmon_service.counted"
#define UM_KEY NS_KEY_SERVICE
#define UM_OBJECT 19
#define UM_LEVELS NS_UNIVMON_SERVICE_LEVELS
#define UM_ROWS NS_UNIVMON_SERVICE_ROWS
#define UM_COLUMNS NS_UNIVMON_SERVICE_COLUMNS
#define UM_SLOTS NS_UNIVMON_SERVICE_SLOTS
#include "univmon.p4"
#endif

#ifdef NS_WITH_UNIVMON_PROTOCOL
#define NS_WITH_PROTOCOL_HASH
#define UM_CONTROL UnivMonProtocol
#define UM_COUNTED "ingress.univmon_protocol.counted"
#define UM_KEY NS_KEY_PROTOCOL
#define UM_OBJECT 21
#define UM_LEVELS NS_UNIVMON_PROTOCOL_LEVELS
#define UM_ROWS NS_UNIVMON_PROTOCOL_ROWS
#define UM_COLUMNS NS_UNIVMON_PROTOCOL_COLUMNS
#define UM_SLOTS NS_UNIVMON_PROTOCOL_SLOTS
#include "univmon.p4"
#endif

#ifdef NS_WITH_CHAMELEMON
#include "chamelemon.p4"
#endif

#ifdef NS_WITH_OMNIMON
#include "omnimon.p4"
#endif

#ifdef NS_WITH_SKETCHINT
#include "sketchint.p4"
#endif

#ifdef NS_WITH_LIGHTGUARDIAN
#include "lightguardian.p4"
#endif

#ifdef NS_WITH_OWN
#include NS_OWN
#endif

#include "flow.p4"
#ifdef NS_WITH_UNIVMON
#include "encapsulation.p4"
#endif

control ingress(inout headers_t hdr, inout metadata_t meta,
                inout standard_metadata_t standard_metadata) {
    counter(NS_DROP_REASONS, CounterType.packets) drops;

    BeginAnswer() begin_answer;
#ifndef NS_WITH_OMNIMON
    Bank() bank;
#endif
    Flow() flow;
    Forwarding() forwarding;
#ifdef NS_WITH_UNIVMON
    Encapsulation() encapsulation;
    Duties() duties;
#endif
#ifdef NS_WITH_UNIVMON_SRC
    UnivMonSrc() univmon_src;
#endif
#ifdef NS_WITH_UNIVMON_DST
    UnivMonDst() univmon_dst;
#endif
#ifdef NS_WITH_UNIVMON_5T
    UnivMon5t() univmon_5t;
#endif
#ifdef NS_WITH_UNIVMON_PAIR
    UnivMonPair() univmon_pair;
#endif
#ifdef NS_WITH_UNIVMON_SERVICE
    UnivMonService() univmon_service;
#endif
#ifdef NS_WITH_UNIVMON_PROTOCOL
    UnivMonProtocol() univmon_protocol;
#endif
#ifdef NS_WITH_CHAMELEMON
    ChameleMonEntry() chamelemon;
#endif
#ifdef NS_WITH_OMNIMON
    OmniMonIngress() omnimon;
#endif
#ifdef NS_WITH_SKETCHINT
    SketchIntIngress() sketchint;
#endif
#ifdef NS_WITH_LIGHTGUARDIAN
    LightGuardianIngress() lightguardian;
#endif
#ifdef NS_WITH_OWN
    OwnIngress() own;
#endif

#ifdef NS_WITH_UNIVMON
    // Packets without a flow, by reason. No sketch counts them. One switch counts each of them: the
    // switch that drops it or sends it to the CPU. Packets whose tunnel carries a faulty packet are
    // forwarded, and counted in further cells.
    @netsketch_readout[object=23, banks=NS_BANKS, counter="ingress.unparsed_counted"]
    @netsketch_univmon[part="unparsed",
                       reasons="not-ip,truncated,bad-version,bad-length,bad-checksum,too-deep",
                       forwarded=NS_UNPARSED_FORWARDED]
    register<bit<32>>(NS_CELLS * NS_BANKS) unparsed;

    // Counted by bank and last, as in univmon.p4.
    counter(NS_BANKS, CounterType.packets) unparsed_counted;

    action no_flow(bit<8> reason) {
        meta.unparsed = reason;
    }

    action count_unparsed() {
        meta.univmon.cell = (bit<32>)meta.bank * NS_CELLS + (bit<32>)meta.unparsed;
        unparsed.read(meta.univmon.count, meta.univmon.cell);
        unparsed.write(meta.univmon.cell, meta.univmon.count + 1);
        unparsed_counted.count((bit<32>)meta.bank);
    }

    // Forwarding uses the outer flow.
    action end_inner() {
        meta.flow.five_tuple = hdr.inner.outer;
        hdr.inner.setInvalid();
    }

    action read_unparsed() {
        NS_READ_AND_CLEAR(unparsed, NS_CELLS)
    }
#endif

    action refuse(bit<8> reason) {
        meta.drop = reason;
    }

    action send_out() {
        standard_metadata.egress_spec = (port_t)hdr.packet_out.egress_port;
        hdr.packet_out.setInvalid();
    }

    action end_answer() {
        hdr.packet_out.setInvalid();
    }

    action discard() {
        drops.count((bit<32>)meta.drop);
        mark_to_drop(standard_metadata);
    }

    apply {
#ifdef NS_WITH_UNIVMON
        bank.apply(meta); // packets without a flow count, too
#endif
        if (hdr.packet_out.isValid() && hdr.packet_out.op == NS_OP_SEND) {
            send_out();
        } else if (hdr.packet_out.isValid() && !hdr.cells.isValid()) {
            refuse(NS_DROP_REQUEST);
        } else if (standard_metadata.parser_error != error.NoError
#ifdef NS_WITH_UNIVMON
                   && !hdr.inner.isValid()
#endif
                   ) {
            refuse(NS_DROP_MALFORMED);
#ifdef NS_WITH_UNIVMON
            if (standard_metadata.parser_error == error.BadIpVersion) {
                no_flow(NS_UNPARSED_VERSION);
            } else if (standard_metadata.parser_error == error.BadIpv4HeaderLength) {
                no_flow(NS_UNPARSED_LENGTH);
            } else if (standard_metadata.parser_error == error.StackOutOfBounds
                       || standard_metadata.parser_error == error.HeaderTooShort) {
                refuse(NS_DROP_DEPTH);
                no_flow(NS_UNPARSED_DEPTH);
            } else if (standard_metadata.ingress_port != NS_CPU_PORT) {
                no_flow(NS_UNPARSED_TRUNCATED);
            }
#endif
        } else if (standard_metadata.checksum_error == 1) {
            refuse(NS_DROP_CHECKSUM);
#ifdef NS_WITH_UNIVMON
            no_flow(NS_UNPARSED_CHECKSUM);
#endif
        } else {
            if (hdr.packet_out.isValid()) {
                begin_answer.apply(hdr, standard_metadata);
            } else if (hdr.ipv4.isValid() || hdr.ipv6.isValid()) {
#if !defined(NS_WITH_OMNIMON) && !defined(NS_WITH_UNIVMON)
                bank.apply(meta);
#endif
                flow.apply(hdr, meta);
#ifdef NS_WITH_UNIVMON
                if (hdr.inner.isValid()) {
                    encapsulation.apply(hdr, meta, standard_metadata);
                }
                duties.apply(hdr, meta, standard_metadata);
            } else {
                no_flow(NS_UNPARSED_NOT_IP);
#endif
            }
            if (hdr.packet_in.isValid() || hdr.ipv4.isValid() || hdr.ipv6.isValid()) {
#ifdef NS_WITH_UNIVMON_SRC
                if (hdr.packet_in.isValid() || NS_COUNTS(NS_KEY_SRC)) {
                    univmon_src.apply(hdr, meta);
                }
#endif
#ifdef NS_WITH_UNIVMON_DST
                if (hdr.packet_in.isValid() || NS_COUNTS(NS_KEY_DST)) {
                    univmon_dst.apply(hdr, meta);
                }
#endif
#ifdef NS_WITH_UNIVMON_5T
                if (hdr.packet_in.isValid() || NS_COUNTS(NS_KEY_FIVE_TUPLE)) {
                    univmon_5t.apply(hdr, meta);
                }
#endif
#ifdef NS_WITH_UNIVMON_PAIR
                if (hdr.packet_in.isValid() || NS_COUNTS(NS_KEY_PAIR)) {
                    univmon_pair.apply(hdr, meta);
                }
#endif
#ifdef NS_WITH_UNIVMON_SERVICE
                if (hdr.packet_in.isValid() || NS_COUNTS(NS_KEY_SERVICE)) {
                    univmon_service.apply(hdr, meta);
                }
#endif
#ifdef NS_WITH_UNIVMON_PROTOCOL
                if (hdr.packet_in.isValid() || NS_COUNTS(NS_KEY_PROTOCOL)) {
                    univmon_protocol.apply(hdr, meta);
                }
#endif
#ifdef NS_WITH_CHAMELEMON
                chamelemon.apply(hdr, meta, standard_metadata);
#endif
#ifdef NS_WITH_OMNIMON
                omnimon.apply(hdr, meta, standard_metadata);
#endif
#ifdef NS_WITH_SKETCHINT
                sketchint.apply(hdr, meta, standard_metadata);
#endif
#ifdef NS_WITH_LIGHTGUARDIAN
                if (!hdr.packet_in.isValid()) {
                    lightguardian.apply(hdr, meta, standard_metadata);
                }
#endif
#ifdef NS_WITH_OWN
                own.apply(hdr, meta, standard_metadata);
#endif
            }
            if (hdr.packet_in.isValid()) {
#ifdef NS_WITH_UNIVMON
                if (NS_ASKED(23, NS_CELLS)) {
                    read_unparsed();
                }
#endif
                end_answer();
            } else {
#ifdef NS_WITH_UNIVMON
                if (hdr.inner.isValid()) {
                    end_inner();
                }
#endif
                forwarding.apply(hdr, meta, standard_metadata);
            }
        }
        if (meta.drop != NS_KEEP) {
            discard();
        }
#ifdef NS_WITH_UNIVMON
        if (meta.unparsed != 0) {
            count_unparsed();
        }
#endif
    }
}

control egress(inout headers_t hdr, inout metadata_t meta,
               inout standard_metadata_t standard_metadata) {
#ifdef NS_WITH_CHAMELEMON
    ChameleMonExit() chamelemon;
#endif
#ifdef NS_WITH_OMNIMON
    OmniMonEgress() omnimon;
#endif
#ifdef NS_WITH_SKETCHINT
    SketchIntEgress() sketchint;
#endif
#ifdef NS_WITH_LIGHTGUARDIAN
    LightGuardianEgress() lightguardian;
#endif
#ifdef NS_WITH_OWN_EGRESS
    OwnEgress() own;
#endif

    apply {
#ifdef NS_WITH_CHAMELEMON
        chamelemon.apply(hdr, meta, standard_metadata);
#endif
#ifdef NS_WITH_OMNIMON
        omnimon.apply(meta, standard_metadata);
#endif
#ifdef NS_WITH_SKETCHINT
        sketchint.apply(hdr, meta, standard_metadata);
#endif
#ifdef NS_WITH_LIGHTGUARDIAN
        lightguardian.apply(hdr, meta, standard_metadata);
#endif
#ifdef NS_WITH_OWN_EGRESS
        own.apply(hdr, meta, standard_metadata);
#endif
    }
}

V1Switch(SwitchParser(), VerifyHeader(), ingress(), egress(), UpdateHeader(),
         SwitchDeparser()) main;

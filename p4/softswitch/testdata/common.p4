// SPDX-License-Identifier: Apache-2.0
// What the engine's test programs have in common. Each defines headers_t, metadata_t, a parser P,
// and controls I (ingress), E (egress) and D (deparser), and ends in TEST_SWITCH.
#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

#define NO_CHECKSUMS \
    control V(inout headers_t hdr, inout metadata_t meta) { apply {} } \
    control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
#define NO_EGRESS \
    control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) { apply {} }
#define EMIT_ALL \
    control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
#define TEST_SWITCH V1Switch(P(), V(), I(), E(), C(), D()) main;

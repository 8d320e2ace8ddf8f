// SPDX-License-Identifier: Apache-2.0
// Actions that read and write several registers: each is one step. The packet comes back with what its action saw.

#include <core.p4>
#include <v1model.p4>

header req_t {
    bit<16> key;
    bit<32> ticket;    // of all packets
    bit<32> mine;      // of the key's cell
    bit<32> difference; // of two registers that go up together
    bit<32> largest;
}

struct headers_t { req_t r; }
struct meta_t { bit<32> i; bit<32> a; bit<32> b; }

parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.r); transition accept; }
}

control V(inout headers_t h, inout meta_t m) { apply { } }

control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    register<bit<32>>(1) tickets;
    register<bit<32>>(64) cells;
    register<bit<32>>(64) twins;
    register<bit<48>>(2) ends;
    @name("bytes") counter(4, CounterType.packets_and_bytes) bytes;

    action step() {
        tickets.read(h.r.ticket, 0);
        tickets.write(0, h.r.ticket + 1);
    }
    action pair() {
        hash(m.i, HashAlgorithm.crc32, 32w0, { h.r.key }, 32w64);
        cells.read(m.a, m.i);
        cells.write(m.i, m.a + 1);
        h.r.mine = m.a;
        if (m.a >= 3) {
            hash(m.i, HashAlgorithm.crc32, 32w0, { h.r.key }, 32w64);
        }
        twins.read(m.b, m.i);
        h.r.difference = m.a - m.b;
        twins.write(m.i, m.b + 1);
    }
    action most() {
        bit<48> v;
        ends.read(v, 0);
        if ((bit<48>)h.r.ticket > v) {
            v = (bit<48>)h.r.ticket;
            ends.write(0, v);
        }
        ends.write(1, v);
        h.r.largest = (bit<32>)v;
    }
    apply {
        step();
        pair();
        most();
        bytes.count((bit<32>)h.r.key & 3);
        s.egress_spec = 1;
    }
}

control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.r); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;

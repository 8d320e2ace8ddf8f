// SPDX-License-Identifier: Apache-2.0
// A unit of OmniMon's queries at a switch (paper, section 6): a filter table in front of one word
// of each slot. A query takes a unit for each value that it adds up, and writes entries of the
// filter at run time.
//
// This file is a template, like univmon.p4. Define the macros below and include it.
//
//   OM_UNIT         name of the control
//   OM_UNIT_NUMBER  number of the word in the slot, from 0
//   OM_UNIT_QUEUE   if defined: the unit runs in egress and matches the queue depth as well

#ifdef OM_UNIT_QUEUE
control OM_UNIT(inout metadata_t meta, in bit<19> queue) {
#else
control OM_UNIT(inout metadata_t meta) {
#endif
    action add_one() {
        OM_UNIT_ADD(1)
    }

    action add_length() {
        OM_UNIT_ADD(OM.length)
    }

    action add_ttl() {
        OM_UNIT_ADD((bit<32>)OM.ttl)
    }

    action add_window() {
        OM_UNIT_ADD((bit<32>)OM.window)
    }

    action skip() {
    }

    // Addresses are 0 for IPv6; flags and window are 0 without TCP.
    table filter {
        key = {
            OM.src: ternary @name("src");
            OM.dst: ternary @name("dst");
            meta.flow.protocol: range @name("protocol");
            meta.flow.src_port: range @name("src_port");
            meta.flow.dst_port: range @name("dst_port");
            OM.length: range @name("length");
            OM.ttl: range @name("ttl");
            OM.window: range @name("window");
            OM.flags: ternary @name("flags");
#ifdef OM_UNIT_QUEUE
            queue: range @name("queue"); // depth that the packet found when it was enqueued
#endif
        }
        actions = { add_one; add_length; add_ttl; add_window; skip; }
        default_action = skip;
        size = 64;
    }

    apply {
        filter.apply();
    }
}

#undef OM_UNIT
#undef OM_UNIT_QUEUE
#undef OM_UNIT_NUMBER

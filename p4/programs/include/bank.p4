// SPDX-License-Identifier: Apache-2.0
// The active bank. The collector flips it by changing the default action of a table without keys,
// which takes effect between two packets. Each packet reads it once, so that all of its updates
// are in one bank.

#ifndef NETSKETCH_BANK_P4
#define NETSKETCH_BANK_P4

#include "headers.p4"

control Bank(inout metadata_t meta) {
    action set_bank(bit<8> bank) {
        // The bank is part of cell indexes: a bank that does not exist would select a wrong cell.
        meta.bank = bank & (NS_BANKS - 1);
    }

    @netsketch_bank[banks=NS_BANKS]
    table bank {
        actions = { set_bank; }
        default_action = set_bank(0);
        size = 1;
    }

    apply {
        bank.apply();
    }
}

#endif

// SPDX-License-Identifier: Apache-2.0
// ChameleMon at the paper's sizes, for edge switches: 732,160 bytes of registers a
// bank. Other switches of the network run forwarding.p4, or any program that leaves
// ToS and traffic class alone.

#define NS_WITH_CHAMELEMON
#define NS_CHAMELEMON_TOWER8 32768
#define NS_CHAMELEMON_TOWER16 16384
#define NS_CHAMELEMON_UPSTREAM 4096
#define NS_CHAMELEMON_DOWNSTREAM 3072
#define NS_CHAMELEMON_UPSTREAM_IPV6 1024
#define NS_CHAMELEMON_DOWNSTREAM_IPV6 768

#include "include/switch.p4"

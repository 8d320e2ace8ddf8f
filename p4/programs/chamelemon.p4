// SPDX-License-Identifier: Apache-2.0
// ChameleMon at the paper's sizes, for edge switches: 732,160 bytes of registers per bank. Other
// switches of the network run forwarding.p4, or any program that does not change ToS and traffic
// class. Sizes are parameters: p4c-bm2-ss -DNS_CHAMELEMON_UPSTREAM=2048 ...

#define NS_WITH_CHAMELEMON
#ifndef NS_CHAMELEMON_TOWER8
#define NS_CHAMELEMON_TOWER8 32768
#endif
#ifndef NS_CHAMELEMON_TOWER16
#define NS_CHAMELEMON_TOWER16 16384
#endif
#ifndef NS_CHAMELEMON_UPSTREAM
#define NS_CHAMELEMON_UPSTREAM 4096
#endif
#ifndef NS_CHAMELEMON_DOWNSTREAM
#define NS_CHAMELEMON_DOWNSTREAM 3072
#endif
#ifndef NS_CHAMELEMON_UPSTREAM_IPV6
#define NS_CHAMELEMON_UPSTREAM_IPV6 1024
#endif
#ifndef NS_CHAMELEMON_DOWNSTREAM_IPV6
#define NS_CHAMELEMON_DOWNSTREAM_IPV6 768
#endif

#include "include/switch.p4"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# OmniMon on real packets: two hosts (network namespaces) with the agent in the kernel, a soft switch
# between them, TCP between two programs, and a queue of the switch that drops packets.
#
#   sudo ./netns.sh run       up, check, down
#   sudo ./netns.sh up        build it and start switch, collector and agents
#   sudo ./netns.sh check     send 16 MB from h1 to h2 over TCP, kill an agent, send 4 MB; compare
#                             results and what happened
#   sudo ./netns.sh query P   print the rows of a path, such as /omnimon/flows
#   sudo ./netns.sh down      stop and remove everything that up created
#
# BIN is the directory of netsketch and its plugins, RUN a new one for logs and process ids, BYTES
# the size of the first file, QUEUE the rate and depth of the queue to h2, in packets a second and
# packets.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
NAME=omnimon
. "$here/../../internal/netns/lib.sh"

up() {
  prepare omnimon-netns-check
  host h1 1
  host h2 2
  start s1 "$BIN/netsketch" switch --name s1 --device-id 1 --listen 10.255.0.1:9559 \
    --port 1=@h1-sw --port 2=@h2-sw --queue "2=${QUEUE:-2000/16}"
  collector /omnimon/summary 'quality": "EXACT"'
}

check() { "$BIN/omnimon-netns-check" -bin "$BIN" -run "$RUN" -bytes "${BYTES:-16777216}"; }

main "$@"

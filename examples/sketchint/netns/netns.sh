#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SketchINT on real packets: two hosts (network namespaces) whose agents remove INT in XDP, two soft
# switches that insert it, and TCP between two programs.
#
#   sudo ./netns.sh run       up, check, down
#   sudo ./netns.sh up        build it and start switches, collector and agents
#   sudo ./netns.sh check     send 8 MB from h1 to h2 over TCP, and 4 MB during which the agent of h2
#                             is killed; compare results, bytes and captures
#   sudo ./netns.sh query P   print the rows of a path, such as /sketchint/latencies
#   sudo ./netns.sh down      stop and remove everything that up created
#
# BIN is the directory of netsketch and its plugins, RUN a new one for logs and process ids, BYTES
# the size of the first file, QUEUE the rate and depth of the queue to h2, in packets a second and
# packets. With AGENTS=bridge the agents are in Go and forward between hosts and switches; none is
# killed, because nothing is forwarded without it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
NAME=sketchint
. "$here/../../internal/netns/lib.sh"

up() {
  prepare sketchint-netns-check
  host h1 1
  host h2 2
  wire s1-s2 s2-s1
  start s1 "$BIN/netsketch" switch --name s1 --device-id 1 --listen 10.255.0.1:9559 \
    --port 1=@h1-sw --port 2=@s1-s2 --queue 2=20000
  start s2 "$BIN/netsketch" switch --name s2 --device-id 2 --listen 10.255.0.1:9560 \
    --port 1=@s2-s1 --port 2=@h2-sw --queue "2=${QUEUE:-4000/64}"
  collector /sketchint/summary 'status": "COMPLETE'
}

check() {
  "$BIN/sketchint-netns-check" -bin "$BIN" -run "$RUN" -bytes "${BYTES:-8388608}" -agents "${AGENTS:-kernel}"
}

main "$@"

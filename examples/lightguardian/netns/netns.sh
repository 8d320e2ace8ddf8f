#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# LightGuardian on real packets: two hosts (network namespaces) whose agents remove sketchlets in
# XDP, two soft switches that insert them, and TCP between two programs.
#
#   sudo ./netns.sh run       up, check, down
#   sudo ./netns.sh up        build it and start switches, collector and agents
#   sudo ./netns.sh check     send 48 MB from h1 to h2 over TCP, and 16 MB during which the agent of
#                             h2 is killed; compare results, bytes and captures
#   sudo ./netns.sh query P   print the rows of a path, such as /lightguardian/hops
#   sudo ./netns.sh down      stop and remove everything that up created
#
# BIN is the directory of netsketch and its plugins, RUN a new one for logs and process ids, BYTES
# the size of the first file, EPOCHS the count of epochs into which the 2 s of an interval are
# divided, such as 20 of 100 ms, QUEUE the rate and depth of the queue to h2, in packets a second and
# packets.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
NAME=lightguardian
LOCAL=1
if [ -n "${EPOCHS:-}" ]; then
  length=$((2000 / EPOCHS))
  EDIT="s/interval: 2s/interval: ${length}ms/; s/drain: 500ms/drain: $((length / 4))ms/
    s/probability: 0.5 /interval: $EPOCHS\n        &/"
fi
. "$here/../../internal/netns/lib.sh"

up() {
  prepare lightguardian-netns-check
  host h1 1
  host h2 2
  wire s1-s2 s2-s1
  start s1 "$BIN/netsketch" switch --name s1 --device-id 1 --listen 10.255.0.1:9559 \
    --port 1=@h1-sw --port 2=@s1-s2 --queue 2=20000
  start s2 "$BIN/netsketch" switch --name s2 --device-id 2 --listen 10.255.0.1:9560 \
    --port 1=@s2-s1 --port 2=@h2-sw --queue "2=${QUEUE:-4000/64}"
  collector /lightguardian/summary 'hosts-delivered": 2'
}

check() { "$BIN/lightguardian-netns-check" -bin "$BIN" -run "$RUN" -bytes "${BYTES:-50331648}"; }

main "$@"

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
BIN=$(realpath "${BIN:-$here/../../../bin}")
RUN=${RUN:-/tmp/netsketch-omnimon}
GATEWAY=02:00:00:00:00:fe # any address: switches forward by IP destination

fail() { echo "netns.sh: $*" >&2; exit 1; }

# made COMMAND...: how to remove what was just created.
made() { echo "$*" >>"$RUN/made"; }

start() { # NAME COMMAND...
  local name=$1
  shift
  "$@" >"$RUN/$name.log" 2>&1 &
  echo $! >"$RUN/$name.pid"
}

query() { "$BIN/netsketch" query "$@" --address 10.255.0.1:9339 --plaintext; }

# host NAME NUMBER: a namespace with eth0 to the switch, and mgmt to the collector.
host() {
  ip netns add "nsk-$1"
  made ip netns del "nsk-$1"
  ip link add name "$1-sw" mtu 9000 type veth peer name eth0 mtu 9000 netns "nsk-$1"
  made ip link del dev "$1-sw"
  sysctl -qw "net.ipv6.conf.$1-sw.disable_ipv6=1" 2>/dev/null || true
  ip link set dev "$1-sw" up
  ip -n "nsk-$1" link set dev lo up
  ip -n "nsk-$1" link set dev eth0 address "02:00:00:00:0$2:01" up
  ip -n "nsk-$1" addr add "10.0.$2.1/24" dev eth0
  ip -n "nsk-$1" neigh add "10.0.$2.254" lladdr $GATEWAY dev eth0
  ip -n "nsk-$1" route add default via "10.0.$2.254" mtu 1500
  # The switch reads frames as they are: the host computes checksums and segments itself.
  ip netns exec "nsk-$1" ethtool -K eth0 tx off tso off gso off >/dev/null
  ip link add name "$1-mgmt" type veth peer name mgmt netns "nsk-$1"
  made ip link del dev "$1-mgmt"
  ip link set dev "$1-mgmt" master nsk-mgmt up
  ip -n "nsk-$1" link set dev mgmt up
  ip -n "nsk-$1" addr add "10.255.0.1$2/24" dev mgmt
  cat >"$RUN/$1.yaml" <<YAML
host: $1
collector: {address: "10.255.0.1:9350", tls: {plaintext: true}}
packets: {source: kernel, interface: eth0, disable-offloads: true, pin: "$RUN/bpf/$1"}
YAML
  start "$1" ip netns exec "nsk-$1" "$BIN/netsketch" hostagent --config "$RUN/$1.yaml"
}

up() {
  for i in netsketch omnimon-netns-check; do
    [ -x "$BIN/$i" ] || fail "$BIN/$i does not exist: run make netns, or set BIN"
  done
  for i in ip ethtool; do
    [ -n "$(command -v $i)" ] || fail "$i is not on the PATH: install it"
  done
  mkdir "$RUN" || fail "another run left $RUN: run $0 down first"
  trap 'tail -n 5 "$RUN"/*.log >&2; down' EXIT
  trap 'exit 1' INT TERM
  : >"$RUN/made"
  # ip netns exec hides /sys/fs/bpf.
  mkdir "$RUN/bpf"
  mount -t bpf bpf "$RUN/bpf"
  made umount "$RUN/bpf"
  ip link add name nsk-mgmt type bridge
  made ip link del dev nsk-mgmt
  ip addr add 10.255.0.1/24 dev nsk-mgmt
  ip link set dev nsk-mgmt up
  host h1 1
  host h2 2
  start s1 "$BIN/netsketch" switch --name s1 --device-id 1 --listen 10.255.0.1:9559 \
    --port 1=@h1-sw --port 2=@h2-sw --queue "2=${QUEUE:-2000/16}"
  sed "s|../../../bin|$BIN|" "$here/collector.yaml" >"$RUN/collector.yaml"
  start collector "$BIN/netsketch" collector --config "$RUN/collector.yaml"
  for i in $(seq 120); do
    if query /omnimon/summary --json 2>/dev/null | grep -q 'exact": true'; then
      echo "epochs are exact; logs are in $RUN"
      trap - EXIT INT TERM
      return
    fi
    sleep 0.5
  done
  fail "no exact epoch within $((i / 2)) s"
}

check() {
  [ -e "$RUN/made" ] || fail "nothing runs: run $0 up first"
  "$BIN/omnimon-netns-check" -bin "$BIN" -run "$RUN" -bytes "${BYTES:-16777216}"
}

# down ends only processes that up started: those of its process ids that still run netsketch.
down() {
  local pids=() pid
  [ -e "$RUN/made" ] || return 0
  for f in "$RUN"/*.pid; do
    [ -e "$f" ] || continue
    pid=$(cat "$f")
    [ "$(readlink "/proc/$pid/exe")" = "$BIN/netsketch" ] || continue
    kill "$pid" && pids+=("$pid") || true
  done
  for pid in "${pids[@]}"; do
    for _ in $(seq 100); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
  done
  tac "$RUN/made" | while read -r undo; do $undo 2>/dev/null || true; done
  rm -rf "$RUN"
}

run() {
  up
  trap down EXIT
  trap 'exit 1' INT TERM
  check
}

[ "$(id -u)" = 0 ] || fail "interfaces and namespaces need root"
case ${1:-} in
run | up | check | down) "$1" ;;
query) "$@" ;;
*) sed -n 's/^#   //p' "$0"; exit 2 ;;
esac

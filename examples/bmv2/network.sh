#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts two hosts, two leaf switches and a spine on this machine. Hosts are network namespaces,
# links are veth pairs, switches are processes of BMv2's simple_switch_grpc, or soft switches.
#
#   sudo ./network.sh up [bmv2|soft]   build it and start the switches
#   sudo ./network.sh traffic [N]      N packets of 40 flows from h1 to h2
#   sudo ./network.sh down             stop and remove everything that up created
#
# NETSKETCH names the netsketch binary (soft), RUN the directory for logs and process ids.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
NETSKETCH=${NETSKETCH:-$here/../../bin/netsketch}
RUN=${RUN:-/tmp/netsketch-bmv2}
GATEWAY=02:00:00:00:00:fe # any address: switches forward by IP destination

fail() { echo "network.sh: $*" >&2; exit 1; }

# link A B: a pair of interfaces for switch ports, without kernel addresses.
link() {
  ip link add name "$1" type veth peer name "$2"
  for i in "$1" "$2"; do
    bare "$i"
    ip link set dev "$i" up
  done
}

bare() {
  sysctl -qw "net.ipv6.conf.$1.disable_ipv6=1" 2>/dev/null || true # a kernel without IPv6 has no such key
  ip link set dev "$1" mtu 9000
}

# host NAME NUMBER: a namespace with one interface, whose other end is NAME-sw.
host() {
  ip netns add "ns-$1"
  ip link add name "$1-sw" type veth peer name eth0 netns "ns-$1"
  bare "$1-sw"
  ip link set dev "$1-sw" up
  ip -n "ns-$1" link set dev lo up
  ip -n "ns-$1" link set dev eth0 address "02:00:00:00:0$2:01" up
  ip -n "ns-$1" addr add "10.0.$2.1/24" dev eth0
  ip -n "ns-$1" neigh add "10.0.$2.254" lladdr $GATEWAY dev eth0
  ip -n "ns-$1" route add default via "10.0.$2.254"
  ip -n "ns-$1" addr add "2001:db8:$2::1/64" dev eth0 nodad 2>/dev/null || return 0
  ip -n "ns-$1" neigh add "2001:db8:$2::fe" lladdr $GATEWAY dev eth0
  ip -n "ns-$1" route add default via "2001:db8:$2::fe"
}

# switch NAME DEVICE-ID ADDRESS PORT=INTERFACE...
switch() {
  local name=$1 id=$2 address=$3 args=()
  shift 3
  if [ "$kind" = soft ]; then
    for p in "$@"; do args+=(--port "${p%%=*}=@${p#*=}"); done
    "$NETSKETCH" switch --name "$name" --device-id "$id" --listen "$address" "${args[@]}" >"$RUN/$name.log" 2>&1 &
  else
    for p in "$@"; do args+=(-i "${p%%=*}@${p#*=}"); done
    simple_switch_grpc --no-p4 --device-id "$id" --thrift-port $((9090 + id)) "${args[@]}" -- \
      --grpc-server-addr "$address" --cpu-port 255 >"$RUN/$name.log" 2>&1 &
  fi
  echo $! >"$RUN/$name.pid"
  for _ in $(seq 100); do
    if (exec 3<>"/dev/tcp/${address%:*}/${address#*:}") 2>/dev/null; then
      echo "$name is up: P4Runtime device $id at $address, log in $RUN/$name.log"
      return
    fi
    kill -0 "$(cat "$RUN/$name.pid")" 2>/dev/null || break
    sleep 0.1
  done
  cat "$RUN/$name.log" >&2
  fail "switch $name did not come up"
}

up() {
  kind=${1:-bmv2}
  case $kind in
  bmv2) command -v simple_switch_grpc >/dev/null || fail "simple_switch_grpc is not on the PATH (https://github.com/p4lang/behavioral-model); or: $0 up soft" ;;
  soft) [ -x "$NETSKETCH" ] || fail "$NETSKETCH does not exist: run make build, or set NETSKETCH" ;;
  *) fail "up $kind: bmv2 or soft" ;;
  esac
  [ -e "$RUN" ] && fail "$RUN exists: run $0 down first"
  mkdir -p "$RUN"
  trap 'down; exit 1' ERR
  link leaf1-1 spine1-1
  link leaf2-1 spine1-2
  host h1 1
  host h2 2
  switch leaf1 1 127.0.0.1:9559 1=leaf1-1 2=h1-sw
  switch leaf2 2 127.0.0.1:9560 1=leaf2-1 2=h2-sw
  switch spine1 3 127.0.0.1:9561 1=spine1-1 2=spine1-2
  trap - ERR
}

# traffic N: datagrams of 40 flows from h1 to h2; flows to lower ports are larger. The rate is some
# hundred per second, because BMv2's queues hold 64 packets and drop the rest silently.
traffic() {
  local before after
  before=$(received)
  # shellcheck disable=SC2016 # the inner shell expands it
  ip netns exec ns-h1 bash -c '
    for n in $(seq 40); do exec {fd}>/dev/udp/10.0.2.1/$((7000 + n)); fds[n]=$fd; done
    for i in $(seq "$1"); do
      n=$((1 + RANDOM * RANDOM / 32768 * 40 / 32768))
      echo "packet $i" >&"${fds[n]}" || true # h2 answers that the port is closed
      ((i % 10)) || sleep 0.01
    done' traffic "${1:-4000}" 2>/dev/null
  sleep 1
  after=$(received)
  echo "h1 sent ${1:-4000} packets, h2 received $((after - before))"
}

received() { ip netns exec ns-h2 cat /sys/class/net/eth0/statistics/rx_packets; }

down() {
  for f in "$RUN"/*.pid; do
    [ -e "$f" ] && kill "$(cat "$f")" 2>/dev/null || true
  done
  for i in leaf1-1 leaf2-1 h1-sw h2-sw; do ip link del dev $i 2>/dev/null || true; done
  for n in h1 h2; do ip netns del "ns-$n" 2>/dev/null || true; done
  rm -rf "$RUN"
}

[ "$(id -u)" = 0 ] || fail "interfaces and namespaces need root"
case ${1:-} in
up) up "${2:-}" ;;
traffic) traffic "${2:-}" ;;
down) down ;;
*) sed -n 's/^#   //p' "$0"; exit 2 ;;
esac

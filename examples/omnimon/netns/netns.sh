#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# OmniMon on real packets: two hosts (network namespaces) with the agent in the kernel, a soft switch
# between them, TCP between two programs, and a queue of the switch that drops packets.
#
#   sudo ./netns.sh up       build it and start switch, collector and agents
#   sudo ./netns.sh traffic  send 8 MB from h1 to h2 over TCP
#   sudo ./netns.sh down     stop and remove everything that up created
#
# BIN is the directory of netsketch and its plugins, RUN the one for logs and process ids.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
BIN=${BIN:-$here/../../../bin}
RUN=${RUN:-/tmp/netsketch-omnimon}
GATEWAY=02:00:00:00:00:fe # any address: switches forward by IP destination

fail() { echo "netns.sh: $*" >&2; exit 1; }

start() { # NAME COMMAND...
  local name=$1
  shift
  "$@" >"$RUN/$name.log" 2>&1 &
  echo $! >"$RUN/$name.pid"
}

# host NAME NUMBER: a namespace with eth0 to the switch, and mgmt to the collector.
host() {
  ip netns add "ns-$1"
  ip link add name "$1-sw" mtu 9000 type veth peer name eth0 mtu 9000 netns "ns-$1"
  sysctl -qw "net.ipv6.conf.$1-sw.disable_ipv6=1" 2>/dev/null || true
  ip link set dev "$1-sw" up
  ip -n "ns-$1" link set dev lo up
  ip -n "ns-$1" link set dev eth0 address "02:00:00:00:0$2:01" up
  ip -n "ns-$1" addr add "10.0.$2.1/24" dev eth0
  ip -n "ns-$1" neigh add "10.0.$2.254" lladdr $GATEWAY dev eth0
  ip -n "ns-$1" route add default via "10.0.$2.254" mtu 1500
  # The switch reads frames as they are: the host computes checksums itself.
  ip netns exec "ns-$1" ethtool -K eth0 tx off tso off gso off >/dev/null
  ip link add name "$1-mgmt" type veth peer name mgmt netns "ns-$1"
  ip link set dev "$1-mgmt" master nsk-mgmt up
  ip -n "ns-$1" link set dev mgmt up
  ip -n "ns-$1" addr add "10.255.0.1$2/24" dev mgmt
  cat >"$RUN/$1.yaml" <<YAML
host: $1
collector: {address: "10.255.0.1:9350", tls: {plaintext: true}}
packets: {source: kernel, interface: eth0, disable-offloads: true}
YAML
  start "$1" ip netns exec "ns-$1" "$BIN/netsketch" hostagent --config "$RUN/$1.yaml"
}

up() {
  [ -x "$BIN/netsketch" ] || fail "$BIN/netsketch does not exist: run make build, or set BIN"
  [ -e "$RUN" ] && fail "$RUN exists: run $0 down first"
  mkdir -p "$RUN"
  trap 'down; exit 1' ERR
  ip link add name nsk-mgmt type bridge
  ip addr add 10.255.0.1/24 dev nsk-mgmt
  ip link set dev nsk-mgmt up
  host h1 1
  host h2 2
  start s1 "$BIN/netsketch" switch --name s1 --device-id 1 --listen 127.0.0.1:9571 \
    --port 1=@h1-sw --port 2=@h2-sw --queue "2=${QUEUE:-4000/16}"
  sed "s|../../../bin|$BIN|" "$here/collector.yaml" >"$RUN/collector.yaml"
  start collector "$BIN/netsketch" collector --config "$RUN/collector.yaml"
  trap - ERR
  echo "logs in $RUN; results: netsketch query, or gNMI at 127.0.0.1:9339"
}

traffic() {
  ip netns exec ns-h2 bash -c 'python3 -c "
import socket
l = socket.create_server((\"10.0.2.1\", 8000))
c, _ = l.accept()
n = 0
while b := c.recv(65536):
    n += len(b)
print(\"h2 received\", n, \"bytes\")
"' &
  local server=$!
  ip netns exec ns-h1 python3 -c '
import socket, time
for _ in range(100):
    try:
        c = socket.create_connection(("10.0.2.1", 8000))
        break
    except OSError:
        time.sleep(0.1)
c.sendall(bytes(8 << 20))
c.close()'
  wait $server
}

down() {
  for f in "$RUN"/*.pid; do
    [ -e "$f" ] && kill "$(cat "$f")" 2>/dev/null || true
  done
  for i in h1-sw h2-sw h1-mgmt h2-mgmt nsk-mgmt; do ip link del dev $i 2>/dev/null || true; done
  for n in h1 h2; do ip netns del "ns-$n" 2>/dev/null || true; done
  rm -rf "$RUN"
}

[ "$(id -u)" = 0 ] || fail "interfaces and namespaces need root"
case ${1:-} in
up | traffic | down) "$1" ;;
*) sed -n 's/^#   //p' "$0"; exit 2 ;;
esac

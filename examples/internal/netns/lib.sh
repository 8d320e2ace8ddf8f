# SPDX-License-Identifier: Apache-2.0
# What the examples with network namespaces share. A script sets NAME and here, LOCAL if agents
# answer queries by themselves, and EDIT to commands of sed for the collector's file, sources this
# file, defines up and check, and calls main "$@".

BIN=$(realpath "${BIN:-$here/../../../bin}")
RUN=${RUN:-/tmp/netsketch-$NAME}
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

# prepare PROGRAM...: a new directory, a BPF file system and the bridge of the collector.
prepare() {
  local i
  for i in netsketch netsketch-agent "$@"; do
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
}

# host NAME NUMBER: a namespace with eth0 to the switch, and mgmt to the collector. With AGENTS=bridge
# its agent is not in the kernel: it forwards between eth0 and the switch.
host() {
  local MTU=9000 link=$1-sw agent=(ip netns exec "nsk-$1")
  local packets="{source: kernel, interface: eth0, disable-offloads: true, pin: \"$RUN/bpf/$1\"}"
  if [ "${AGENTS:-kernel}" = bridge ]; then
    link=$1-in agent=()
    MTU=8000 # the bridge needs room for headers outside
    packets="{source: bridge, inside: $1-in, outside: $1-out, sockets: 2}"
    wire "$1-out" "$1-sw"
  fi
  ip netns add "nsk-$1"
  made ip netns del "nsk-$1"
  ip link add name "$link" mtu $MTU type veth peer name eth0 mtu $MTU netns "nsk-$1"
  made ip link del dev "$link"
  sysctl -qw "net.ipv6.conf.$link.disable_ipv6=1" 2>/dev/null || true
  ip link set dev "$link" up
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
roles: [$NAME]
packets: $packets
${LOCAL:+local: "unix://$RUN/$1.sock"}
YAML
  start "$1" "${agent[@]}" "$BIN/netsketch-agent" --config "$RUN/$1.yaml"
}

# wire A B: a link between two switches.
wire() {
  ip link add name "$1" mtu 9000 type veth peer name "$2" mtu 9000
  made ip link del dev "$1"
  local i
  for i in "$1" "$2"; do
    sysctl -qw "net.ipv6.conf.$i.disable_ipv6=1" 2>/dev/null || true
    ip link set dev "$i" up
  done
}

# collector PATH TEXT: start the collector, and wait until the JSON of a path has a text.
collector() {
  sed -e "s|../../../bin|$BIN|" -e "${EDIT:-}" "$here/collector.yaml" >"$RUN/collector.yaml"
  start collector "$BIN/netsketch" collector --config "$RUN/collector.yaml"
  local i
  for i in $(seq 120); do
    if query "$1" --json 2>/dev/null | grep -q "$2"; then
      echo "results are there; logs are in $RUN"
      trap - EXIT INT TERM
      return
    fi
    sleep 0.5
  done
  fail "no results within $((i / 2)) s"
}

# down ends only processes that up started: those of its process ids that still run our programs.
down() {
  local pids=() pid exe
  [ -e "$RUN/made" ] || return 0
  for f in "$RUN"/*.pid; do
    [ -e "$f" ] || continue
    pid=$(cat "$f")
    exe=$(readlink "/proc/$pid/exe" || true)
    case ${exe% (deleted)} in "$BIN/netsketch" | "$BIN/netsketch-agent") ;; *) continue ;; esac # also if it was built again
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

main() {
  [ "$(id -u)" = 0 ] || fail "interfaces and namespaces need root"
  case ${1:-} in
  check) [ -e "$RUN/made" ] || fail "nothing runs: run $0 up first"; check ;;
  run | up | down) "$1" ;;
  query) "$@" ;;
  *) sed -n 's/^#   //p' "$0"; exit 2 ;;
  esac
}

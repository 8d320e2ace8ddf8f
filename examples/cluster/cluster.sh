#!/usr/bin/env bash
# Three collectors share the switches of an emulated fat tree with traffic; one of them is killed,
# and the others take over its switches. Needs `make build`. Everything ends with the script, also
# after Ctrl-C.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BIN:-$PWD/bin}
dir=$(mktemp -d)
port=${PORT:-19500} # the first of four ports
declare -A pids=()
failed=yes

end() {
  trap - EXIT
  for name in "${!pids[@]}"; do kill "${pids[$name]}" 2>/dev/null || true; done
  for name in "${!pids[@]}"; do
    for _ in $(seq 100); do
      if ! kill -0 "${pids[$name]}" 2>/dev/null; then break; fi
      sleep 0.1
    done
    kill -9 "${pids[$name]}" 2>/dev/null && echo "$name did not end within 10 s, and was killed" || true
  done
  if [ "$failed" = yes ]; then
    tail -n 20 "$dir"/*.log
    echo "logs are in $dir"
  else
    rm -r "$dir"
  fi
}
trap end EXIT
trap 'failed=no; exit 130' INT TERM

start() { # NAME PROGRAM ARGUMENTS...
  local name=$1
  shift
  "$@" >>"$dir/$name.log" 2>&1 &
  pids[$name]=$!
}

collector() { # NUMBER
  local embedded=""
  # The first collector runs the NATS server for this trial; docs/cluster.md has three of their own.
  [ "$1" = 1 ] && embedded="embedded: {listen: \"127.0.0.1:$port\", directory: $dir/nats}"
  cat - "$dir/network.yaml" >"$dir/collector$1.yaml" <<YAML
epoch: {interval: 2s}
cluster:
  name: example
  member: collector$1
  nats:
    addresses: ["127.0.0.1:$port"]
    tls: {plaintext: true}
    $embedded
outputs: [{type: gnmi, address: "127.0.0.1:$((port + $1))", tls: {plaintext: true}}]
plugins: {directory: $bin/plugins, instances: [{plugin: univmon}]}
device-defaults: {forwarding: managed, tls: {plaintext: true}}
YAML
  start "collector$1" "$bin/netsketch" collector --config "$dir/collector$1.yaml"
}

status() { "$bin/netsketch" cluster status --config "$dir/collector1.yaml"; }

until_within() { # SECONDS WHAT COMMAND...: waits until the command succeeds
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    if [ "$SECONDS" -ge "$end" ]; then
      echo "not in time: $what"
      return 1
    fi
    sleep 0.2
  done
}

# The newest results of a switch as a collector serves them over gNMI: EPOCH PACKETS. It fails if they
# are absent, because no collector has measured the switch yet.
newest() { # SWITCH COLLECTOR
  "$bin/netsketch" query "/univmon/node-summaries/node-summary[node=$1][dimension=src]/state" --plaintext --json \
    --address "127.0.0.1:$((port + $2))" >"$dir/answer" 2>>"$dir/query.log" || return 1
  "$bin/netsketch" query /univmon/summary/state/last-epoch --plaintext --json \
    --address "127.0.0.1:$((port + $2))" >>"$dir/answer" 2>>"$dir/query.log" || return 1
  cat "$dir/answer" >>"$dir/query.log"
  local epoch packets
  epoch=$(grep -Eo '"last-epoch": *"?[0-9]+' "$dir/answer" | grep -Eo '[0-9]+' | tail -n 1)
  packets=$(grep -Eo '"packets": *"?[0-9]+' "$dir/answer" | grep -Eo '[0-9]+' | tail -n 1)
  [ -n "$epoch" ] && [ -n "$packets" ] || return 1
  echo "$epoch $packets"
}

three_members() { [ "$(status 2>/dev/null | grep -c ' active ')" = 3 ]; }
measured() { # SWITCH COLLECTOR EPOCH: there are packets in an epoch after this one
  local result
  result=$(newest "$1" "$2") || return 1
  [ "${result% *}" -gt "$3" ] && [ "${result#* }" -gt 0 ]
}
is_gone() { ! status 2>/dev/null | grep -q "^$1 "; }

go build -o "$dir/network" ./examples/cluster/network
start network "$dir/network" --config "$dir/network.yaml"
until_within 60 "the emulated network" test -s "$dir/network.yaml"
for i in 1 2 3; do collector $i; done
until_within 60 "three members" three_members
echo "== three collectors"
status
victim=$(status | awk '$1 != "collector1" && $NF ~ /edge/ {print $1; exit}')
lost=$(status | awk -v m="$victim" '$1 == m {print $NF; exit}')
switch=$(grep -Eo 'edge[0-9]-[0-9]' <<<"$lost" | head -n 1)
for i in 1 2 3; do # each collector serves the results of all
  until_within 120 "packets of $switch at collector$i" measured "$switch" "$i" 0
done
read -r before packets <<<"$(newest "$switch" 1)"
echo "== kill -9 $victim, which owns $lost; $switch had $packets packets in epoch $before"
begin=$(date +%s%N)
kill -9 "${pids[$victim]}"
wait "${pids[$victim]}" 2>/dev/null || true # bash prints no line about it
unset "pids[$victim]"
until_within 60 "the lease of $victim ends" is_gone "$victim"
echo "== the others own all after $((($(date +%s%N) - begin) / 1000000)) ms"
status
until_within 120 "results of $switch" measured "$switch" 1 "$((before + 2))"
read -r after packets <<<"$(newest "$switch" 1)"
echo "== results continue: $switch had $packets packets in epoch $after"
failed=no

#!/usr/bin/env bash
# Three collectors share six soft switches on this machine; one of them is killed, and the others
# take over its switches. Needs `make build`. Everything ends with the script.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BIN:-$PWD/bin}
dir=$(mktemp -d)
port=${PORT:-19500} # the first of 20 ports
declare -A pids=()

end() {
  for name in "${!pids[@]}"; do kill "${pids[$name]}" 2>/dev/null || true; done
  wait || true
  if [ "${failed:-yes}" = yes ]; then
    tail -n 20 "$dir"/*.log
    echo "logs are in $dir"
  else
    rm -r "$dir"
  fi
}
trap end EXIT

start() { # NAME ARGUMENTS...
  local name=$1
  shift
  "$bin/netsketch" "$@" >>"$dir/$name.log" 2>&1 &
  pids[$name]=$!
}

collector() { # NUMBER
  local embedded=""
  # The first collector runs the NATS server for this trial; docs/cluster.md has three of their own.
  [ "$1" = 1 ] && embedded="embedded: {listen: \"127.0.0.1:$port\", directory: $dir/nats}"
  cat >"$dir/collector$1.yaml" <<YAML
epoch: {interval: 1s}
cluster:
  name: example
  member: collector$1
  nats:
    addresses: ["127.0.0.1:$port"]
    tls: {plaintext: true}
    $embedded
outputs: [{type: gnmi, address: "127.0.0.1:$((port + $1))", tls: {plaintext: true}}]
plugins: {directory: $bin/plugins, instances: [{plugin: univmon}]}
device-defaults: {pipeline: univmon-300k, tls: {plaintext: true}}
devices:
$(for i in 1 2 3 4 5 6; do
    echo "  - {name: leaf$i, address: \"127.0.0.1:$((port + 10 + i))\", device-id: $i}"
  done)
YAML
  start "collector$1" collector --config "$dir/collector$1.yaml"
}

status() { "$bin/netsketch" cluster status --config "$dir/collector1.yaml"; }

until_status() { # SECONDS PATTERN: waits until the status has a line that matches
  for _ in $(seq $(($1 * 5))); do
    if grep -Eq "$2" <<<"$(status 2>/dev/null)"; then return; fi
    sleep 0.2
  done
  echo "not within $1 s: $2"
  status
  return 1
}

newest() { # the newest epoch of a switch, as the first collector serves it; empty if there is none
  "$bin/netsketch" query "/univmon/summaries/summary[device=$1][dimension=src]" --plaintext --json \
    --address "127.0.0.1:$((port + 1))" 2>>"$dir/query.log" | tee -a "$dir/query.log" |
    grep -Eo '"epoch": *"?[0-9]+' | grep -Eo '[0-9]+' | tail -n 1 || true
}

for i in 1 2 3 4 5 6; do
  start "leaf$i" switch --program univmon-300k --listen "127.0.0.1:$((port + 10 + i))" --device-id "$i" --grpc-ports 2
done
for i in 1 2 3; do collector $i; done
until_status 30 '^collector3 +active'
echo "== three collectors"
status
victim=$(status | awk '$1 != "collector1" && $NF ~ /leaf/ {print $1; exit}')
lost=$(status | awk -v m="$victim" '$1 == m {print $NF}')
for _ in $(seq 150); do # until there are results
  before=$(newest "${lost%%,*}")
  if [ -n "$before" ]; then break; fi
  sleep 0.2
done
echo "== kill -9 $victim, which owns $lost; the newest epoch of ${lost%%,*} is ${before:?}"
kill -9 "${pids[$victim]}"
unset "pids[$victim]"
begin=$(date +%s%N)
while grep -q "^$victim " <<<"$(status)"; do sleep 0.1; done
echo "== the others own all after $((($(date +%s%N) - begin) / 1000000)) ms"
status
for _ in $(seq 100); do
  after=$(newest "${lost%%,*}")
  if [ -n "$after" ] && [ "$after" -gt "$((before + 2))" ]; then
    echo "== results continue: the newest epoch of ${lost%%,*} is $after"
    failed=no
    exit 0
  fi
  sleep 0.2
done
echo "no results of ${lost%%,*} after epoch $before"
exit 1

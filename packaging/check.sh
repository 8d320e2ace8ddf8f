#!/usr/bin/env bash
# check.sh FILE...: installs each package, deb or rpm, in a copy of this system, checks what it
# installed, and removes it. The copy is an overlay in a mount namespace: nothing of this system
# changes.
set -euo pipefail
fail() { echo "package-check: $*" >&2; exit 1; }

if [ "${1:-}" != inside ]; then
  [ $# -gt 0 ] || fail "expected the file names of packages"
  [ "$(id -u)" = 0 ] || fail "needs root, for a mount namespace"
  for tool in dpkg apt-get systemd-analyze unshare; do
    command -v $tool >/dev/null || fail "needs $tool: run it on Debian or Ubuntu"
  done
  copy=$(mktemp -d)
  trap 'rmdir "$copy"' EXIT
  for file; do
    case $file in *.deb) ;; *.rpm) command -v rpm >/dev/null || fail "needs rpm, of the Debian package of this name" ;;
    *) fail "$file is no deb and no rpm" ;; esac
    [ -f "$file" ] || fail "no file $file: run make package"
    unshare --mount --net --pid --fork --propagation private "$(realpath "$0")" inside "$(realpath "$file")" "$copy"
  done
  exit
fi

copy=$3
mount -t tmpfs none "$copy"
mkdir "$copy"/{upper,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$copy/upper,workdir=$copy/work" "$copy/root"
root=$copy/root
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
type=${2##*.}
cp "$2" "$root/tmp/netsketch.$type"
rm -rf "$root"/usr/local/bin/netsketch* "$root/etc/netsketch"
run() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }

case $type in
deb) install=(apt-get install -qq -o APT::Sandbox::User=root) remove=(dpkg --purge) ;;
rpm) install=(rpm --install --nodeps) remove=(rpm --erase --nodeps) ;; # rpm does not know this system's packages
esac
run "${install[@]}" "/tmp/netsketch.$type" >"$copy/log" 2>&1 || { cat "$copy/log" >&2; fail "the $type cannot be installed"; }
run netsketch version
run netsketch hostagent --version # netsketch-agent
run getent passwd netsketch >/dev/null || fail "no user netsketch"
[ "$(run stat -c '%U:%G %a' /etc/netsketch/netsketch.yaml)" = "root:netsketch 640" ] || fail "netsketch.yaml: wrong owner or mode"
run setpriv --reuid netsketch --regid netsketch --clear-groups --no-new-privs --bounding-set -all \
  netsketch config check /etc/netsketch/netsketch.yaml || fail "the collector's user cannot use its configuration"

units=(netsketch-collector.service netsketch-agent.service netsketch-strip.service netsketch-switch@leaf1.service)
# A key that only newer versions of systemd have is ignored by older ones.
problems=$(run systemd-analyze verify --recursive-errors=no "${units[@]}" 2>&1 | grep -v "Unknown key.*DelegateSubgroup" || true)
[ -z "$problems" ] || fail "systemd-analyze verify: $problems"
for unit in "${units[@]}"; do
  grep -qE "^ExecStart=/usr/bin/netsketch(-agent)? " "$root/usr/lib/systemd/system/${unit/leaf1/}" || fail "$unit does not run /usr/bin/netsketch"
  run systemd-analyze security --offline=yes --threshold=25 --no-pager "${unit/leaf1/}" >"$copy/log" 2>&1 ||
    { cat "$copy/log" >&2; fail "$unit: exposure above 2.5"; }
  tail -n 1 "$copy/log"
done
for page in netsketch netsketch-collector netsketch-yang-export netsketch-agent netsketch-agent-remove; do
  case $type in deb) run dpkg -L netsketch ;; rpm) run rpm --query --list netsketch ;; esac | grep "/$page.1.gz" >/dev/null ||
    fail "no manual page $page"
done
dangling=$(cd "$root/usr/share/netsketch/go" && find README.md docs examples -name '*.md' | while read -r page; do
  grep -oP '\]\(\K[^):#\s]+(?=[)#])' "$page" | while read -r to; do [ -e "${page%/*}/$to" ] || [ -e "$to" ] || echo "$page: $to"; done
done)
[ -z "$dangling" ] || fail "links of installed pages lead nowhere: $dangling"
run test -f /usr/share/doc/netsketch/docs/own-program.md || fail "no pages below /usr/share/doc/netsketch"
run test -f /usr/share/netsketch/p4include/netsketch/switch.p4 || fail "no includes of P4 programs"
run bash -c '. /usr/share/bash-completion/completions/netsketch && complete -p netsketch' >/dev/null || fail "no completion"

run "${remove[@]}" netsketch >"$copy/log" 2>&1 || { cat "$copy/log" >&2; fail "the $type cannot be removed"; }
places=(usr/bin usr/lib/systemd usr/lib/netsketch etc/netsketch)
[ "$type" = rpm ] || places+=(var/lib/netsketch) # rpm has no purge, and leaves the state
left=$(find "${places[@]/#/$root/}" -name 'netsketch*' 2>/dev/null || true)
[ -z "$left" ] || fail "the $type left $left"
echo "package-check: the $type was installed, checked and removed"

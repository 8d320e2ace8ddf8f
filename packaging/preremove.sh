#!/bin/sh
# Before files of the package are removed, not before they are replaced: deb calls with "remove" or
# "upgrade", rpm with the number of versions that remain.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
  systemctl disable --now netsketch-collector.service netsketch-agent.service netsketch-strip.service || true
  systemctl stop 'netsketch-switch@*.service' || true
fi
# Programs of the agent stay in the kernel without it. Other hosts send headers to this one until
# their leases end, so this takes some seconds if there are any.
netsketch-agent remove --config /etc/netsketch/agent.yaml || true

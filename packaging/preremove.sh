#!/bin/sh
# Before files of the package are removed, not before they are replaced: deb calls with "remove" or
# "upgrade", rpm with the number of versions that remain.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
  systemctl disable --now netsketch-collector.service netsketch-hostagent.service || true
  systemctl stop 'netsketch-switch@*.service' || true
fi

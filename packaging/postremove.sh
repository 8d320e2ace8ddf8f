#!/bin/sh
# After files of the package were removed. The state goes with "purge" (deb) only; rpm leaves it.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ "$1" = purge ]; then rm -rf /var/lib/netsketch /var/lib/netsketch-agent /etc/netsketch; fi

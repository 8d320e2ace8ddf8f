#!/bin/sh
# After files of the package were installed or replaced: deb calls with "configure", rpm with 1 or 2.
set -e
if command -v systemd-sysusers >/dev/null; then systemd-sysusers netsketch.conf
elif ! getent passwd netsketch >/dev/null; then
  useradd --system --user-group --home-dir /var/lib/netsketch --no-create-home --shell /usr/sbin/nologin netsketch
fi
chgrp netsketch /etc/netsketch/netsketch.yaml
# Without systemd, as in a container's build, there is nothing to do.
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl try-restart netsketch-collector.service netsketch-agent.service 'netsketch-switch@*.service'

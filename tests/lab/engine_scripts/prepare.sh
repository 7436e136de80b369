#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In a throw-away Debian: installs Python and the packages that are this script's arguments. If
# there is /srv/ioctl.py, it also makes the root file system of containers.
set -eE
trap 'echo "prepare.sh: line $LINENO failed: $BASH_COMMAND"' ERR

# The rest would change a real machine.
[[ -e /run/cudaguard-lab ]] || { echo "prepare.sh: this is no machine of the lab" >&2; exit 1; }

printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d # the packages start no service
chmod 755 /usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive
install=(apt-get -q install -y --no-install-recommends -o Dpkg::Options::=--force-unsafe-io)
# A mirror of sid can be older than its Release file allows.
apt-get -q -o Acquire::Check-Valid-Until=false update
"${install[@]}" ca-certificates python3
ldconfig
echo "127.0.0.1 localhost $(hostname)" >/etc/hosts

echo 'import ctypes; print(ctypes.CDLL("libcuda.so.1").cuInit(0))' >/srv/ask.py
if [[ -e /srv/ioctl.py ]]; then
  cp /srv/ask.py /srv/ioctl.py /
  chmod 644 /ask.py /ioctl.py
  tar -C / -cf /srv/image.tar --exclude=usr/share --exclude=usr/local --exclude='*/__pycache__' \
    --exclude=usr/lib/x86_64-linux-gnu/perl-base bin lib lib64 sbin usr etc ask.py ioctl.py
fi

useradd --create-home --shell /bin/bash alice
[[ $# -eq 0 ]] || "${install[@]}" "$@"

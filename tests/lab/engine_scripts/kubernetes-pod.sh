# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Podman starts the pod of scripts/integrations/kubernetes/pod.yaml. `kubectl` is Podman, for the
# two commands of the page.
use_podman runc
docker() { podman "$@"; }

# The program's image has a train.py that asks, and then waits for the page's commands.
printf 'exec(open("/ask.py").read(), {})\nimport sys, time\nsys.stdout.flush()\ntime.sleep(900)\n' \
  >/srv/train.py
tar -C /srv -rf /srv/image.tar train.py
podman import /srv/image.tar registry.example.com/program:1.0 >/dev/null
mkdir busybox busybox/bin
cp "$(command -v busybox)" busybox/bin
ln -s busybox busybox/bin/cp
tar -C busybox -c . | podman import - busybox >/dev/null
make_context
# shellcheck source=/dev/null # a block of the page
(cd context && . ../build)

start_pod() {
  podman kube play --network=host /opt/cudaguard/share/cudaguard/kubernetes/pod.yaml
  patience /dev/null sh -c 'podman logs cpu-only-program 2>&1 | grep -q cudaguard'
}

kubectl() { # exec|logs POD -c CONTAINER [-- COMMAND...]
  local verb=$1 name=$2-$4
  shift 4
  [ "${1:-}" != -- ] || shift
  podman "$verb" "$name" "$@"
}

# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Podman starts the pod that Kubernetes' plug-in has made of `requests-nothing`, with a program that
# asks, and mounts the image volume.
mkdir graph
mount -t tmpfs none graph # Podman makes an overlay for the pod itself, which cannot lie in another
use_podman runc
podman import /srv/image.tar plain >/dev/null
make_tarball x86_64 /opt/cudaguard
# shellcheck source=/dev/null # a block of the page
. ./make

play() {
  python3 -c '
import json
spec = json.load(open("admitted.json"))["requests-nothing"]
spec["containers"][0].update(
    image="localhost/plain", command=["sh", "-c", "python3 /ask.py; exec sleep 900"])
spec["restartPolicy"] = "Never"
print(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}))
' >pod.yaml
  podman kube play --network=host pod.yaml
  patience /dev/null sh -c 'podman logs pod-a 2>&1 | grep -q "^[0-9]"'
  podman logs pod-a
}

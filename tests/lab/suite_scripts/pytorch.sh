# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The tests are in the upstream archive of Debian's source package. The wheel of the same version has
# CUDA.
get() {
  source_package pytorch --tar-only
  python3 -m venv venv
  venv/bin/pip install -q 'torch==1.13.1' 'numpy<2' expecttest pytest pyyaml hypothesis psutil \
    'setuptools<70'
}
build() { :; }
tests() {
  cd test || exit
  for file in test_multiprocessing.py test_dataloader.py test_autograd.py; do
    echo "=== $file"
    timeout 3000 /srv/suite/venv/bin/python "$file" -v </dev/null 2>&1
  done
}

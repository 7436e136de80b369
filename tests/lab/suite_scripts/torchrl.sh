# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
get() {
  clone pytorch/rl v0.13.3
  python3 -m venv venv
  venv/bin/pip install -q torchrl==0.13.3 tensordict==0.13.0 torch==2.9.1 gymnasium pytest \
    pytest-mock pytest-timeout pyyaml
}
build() { rm -r torchrl; } # the tests use the installed package
tests() {
  cd test || exit
  # All classes take more than an hour.
  local classes="TestAsyncCollection or TestCollectorDevices or TestHeterogeneousEnvsCollector"
  classes="$classes or TestMultiKeyEnvsCollector or TestNestedEnvsCollector"
  timeout 3000 /srv/suite/venv/bin/python -m pytest -v -p no:cacheprovider --timeout 300 \
    -k "$classes" test_collectors.py
}

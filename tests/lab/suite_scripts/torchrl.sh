# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The index has the source archive of no version, unless that changes: then its tests run here.
get() {
  python3 -m venv venv
  venv/bin/pip download -q --no-deps --no-binary :all: torchrl
  venv/bin/pip install -q torchrl pytest
  tar -xf torchrl-*.tar.gz --one-top-level=work --strip-components=1
}
build() { [ -d test ]; }
tests() { /srv/suite/venv/bin/python -m pytest -v -p no:cacheprovider test/test_collector.py; }

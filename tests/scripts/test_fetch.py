# SPDX-License-Identifier: Apache-2.0
"""scripts/fetch-cuda, fetch-frameworks and fetch-pythons print the true reason of a failure, use
pip's settings, and continue after a failure."""

import functools
import http.server
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

import pytest

from support import harness

SCRIPTS = os.path.join(harness.SOURCE, "scripts")
# This replaces uv: it fails for one framework and records its arguments.
UV = """#!/bin/bash
echo "$1 index=${UV_DEFAULT_INDEX:-} cert=${SSL_CERT_FILE:-}" >>"$NOTES"
case "$*" in *broken*/ucx* | *"/ucx.txt"*) [ "$1" = pip ] && exit 2 ;; esac
[ "$1" = venv ] && mkdir -p "${@: -1}/bin" "${@: -1}/lib/python3.11/site-packages"
exit 0
"""
UV_VERSION = "0.13.8"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="cg-")
        self.addCleanup(scratch.cleanup)
        self.directory = scratch.name
        self.dest = os.path.join(self.directory, "deps")
        self.notes = os.path.join(self.directory, "notes")

    def call(self, script, *words, **settings):
        """Runs the script with only these pip and TLS settings."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(
            ("PIP_", "UV_", "SSL_", "REQUESTS_", "CURL_", "HTTP", "http"))}
        env.update({"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "1", "NOTES": self.notes,
                    "NO_PROXY": "*", "HOME": self.directory, **settings})
        return subprocess.run([os.path.join(SCRIPTS, script), self.dest, *words], env=env,
                              capture_output=True, text=True, timeout=300)

    def last_line(self, done):
        self.assertNotEqual(done.returncode, 0, done)
        return done.stderr.strip().splitlines()[-1]


class Reason(Case):
    def server(self):
        """Starts an index whose certificate no authority has signed."""
        openssl = shutil.which("openssl")
        if not openssl:
            harness.skip(self, "not installed: openssl")
        key, certificate = (os.path.join(self.directory, name) for name in ("key", "certificate"))
        subprocess.run([openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key,
                        "-out", certificate, "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        os.mkdir(os.path.join(self.directory, "index"))
        handler = functools.partial(Quiet, directory=os.path.join(self.directory, "index"))
        served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        served.socket = context.wrap_socket(served.socket, server_side=True)
        threading.Thread(target=served.serve_forever, daemon=True).start()
        self.addCleanup(served.server_close)
        self.addCleanup(served.shutdown)
        return "https://localhost:%d/simple" % served.server_port, certificate

    @pytest.mark.full
    def test_fetch_cuda_names_the_certificate_error(self):
        index, certificate = self.server()
        line = self.last_line(self.call("fetch-cuda", "13", PIP_INDEX_URL=index))
        self.assertRegex(line, "^fetch-cuda: download failed: certificate verify failed")
        # With pip's own setting the certificate is accepted, and the error is that this index is
        # empty.
        line = self.last_line(self.call("fetch-cuda", "13", PIP_INDEX_URL=index,
                                        PIP_CERT=certificate))
        self.assertNotIn("certificate", line)

    @pytest.mark.full
    def test_fetch_frameworks_names_the_certificate_error(self):
        index, _ = self.server()
        done = self.call("fetch-frameworks", "ucx", PIP_INDEX_URL=index)
        self.assertEqual(done.returncode, 75, done)
        with open(os.path.join(self.dest, "frameworks", "ucx.unreachable"), encoding="utf-8") as f:
            self.assertIn("cannot be reached: certificate verify failed", f.read())

    def test_fetch_cuda_names_the_network_error(self):
        line = self.last_line(self.call("fetch-cuda", "13",
                                        PIP_INDEX_URL="http://127.0.0.1:1/simple"))
        self.assertRegex(line, "^fetch-cuda: download failed: .*Connection refused")

    @pytest.mark.full
    def test_missing_certificate_file_is_named(self):
        line = self.last_line(self.call("fetch-cuda", "13", PIP_CERT="/nonexistent.pem"))
        self.assertIn("/nonexistent.pem", line)


class Pythons(Case):
    def test_fetch_pythons_names_errors_and_missing_names(self):
        """The script prints the reason, then what is missing. It also reports a name that it does
        not know."""
        config = os.path.join(self.directory, "apt.conf")
        with open(config, "w", encoding="utf-8") as stream:
            stream.write('Acquire::http::Proxy "http://127.0.0.1:1";\nAcquire::Retries "0";\n')
        done = self.call("fetch-pythons", "pypy", "cobra", APT_CONFIG=config)
        self.assertEqual(self.last_line(done), "fetch-pythons: not fetched: pypy cobra")
        self.assertRegex(done.stderr, r"(?m)^fetch-pythons: bookworm: [EW]: .*127\.0\.0\.1")
        self.assertIn("fetch-pythons: no such interpreter: cobra\n", done.stderr)


class Frameworks(Case):
    def setUp(self):
        super().setUp()
        # Releases whose own Python is newer use the fetched 3.11.
        if sys.version_info >= (3, 13) and not os.path.isdir(
                os.path.join(harness.DEPS, "pythons", "debian-3.11")):
            harness.skip(self, "run scripts/fetch-pythons %s debian-3.11" % harness.DEPS)
        os.makedirs(self.dest)
        os.symlink(os.path.join(harness.DEPS, "pythons"), os.path.join(self.dest, "pythons"))
        place = os.path.join(self.dest, "frameworks", ".uv-" + UV_VERSION, "bin")
        os.makedirs(place)
        with open(os.path.join(place, "uv"), "w", encoding="utf-8") as stream:
            stream.write(UV)
        os.chmod(os.path.join(place, "uv"), 0o755)

    def test_fetch_continues_after_a_failure(self):
        """ucx fails, and the index cannot be reached, but the other frameworks are installed."""
        done = self.call("fetch-frameworks", "nvml", "ucx", "jupyter",
                         PIP_INDEX_URL="http://127.0.0.1:1/simple")
        self.assertEqual(done.returncode, 75, done)
        self.assertIn("fetch-frameworks: nvml: ", done.stdout)
        self.assertIn("fetch-frameworks: jupyter: ", done.stdout)
        self.assertEqual(self.last_line(done), "fetch-frameworks: not fetched: ucx")
        found = os.listdir(os.path.join(self.dest, "frameworks"))
        self.assertIn("ucx.unreachable", found)
        for name, there in (("nvml", True), ("ucx", False), ("jupyter", True)):
            stamp = os.path.join(self.dest, "frameworks", name, ".fetched")
            self.assertEqual(os.path.exists(stamp), there, name)

    def settings(self, **settings):
        done = self.call("fetch-frameworks", "nvml", **settings)
        self.assertEqual(done.returncode, 0, done)
        with open(self.notes, encoding="utf-8") as stream:
            return stream.read()

    @pytest.mark.full
    def test_pips_configuration_reaches_uv(self):
        config = os.path.join(self.directory, "pip.conf")
        with open(config, "w", encoding="utf-8") as stream:
            stream.write("[global]\ncert = /company.pem\nindex-url = https://company/simple\n")
        self.assertIn("venv index=https://company/simple cert=/company.pem",
                      self.settings(PIP_CONFIG_FILE=config))

    @pytest.mark.full
    def test_pip_cert_of_the_environment_reaches_uv(self):
        self.assertIn("venv index= cert=/mine.pem", self.settings(PIP_CERT="/mine.pem"))

    @pytest.mark.full
    def test_control_uv_gets_no_setting_by_default(self):
        self.assertIn("venv index= cert=\n", self.settings())

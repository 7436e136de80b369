# SPDX-License-Identifier: Apache-2.0
"""scripts/fetch-cuda, which a build needs, prints the true reason of a failure, and uses pip's
settings."""

import functools
import http.server
import os
import shutil
import ssl
import subprocess
import tempfile
import threading

import pytest

from support import harness

SCRIPT = os.path.join(harness.SOURCE, "scripts", "fetch-cuda")
NOWHERE = "http://127.0.0.1:1/simple"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def last_line(directory, **settings):
    """The script's last line with only these pip and TLS settings. It must fail."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(
        ("PIP_", "UV_", "SSL_", "REQUESTS_", "CURL_", "HTTP", "http"))}
    env.update({"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "1", "NO_PROXY": "*",
                "HOME": str(directory), **settings})
    done = subprocess.run([SCRIPT, directory / "deps", "13"], env=env, capture_output=True,
                          text=True, timeout=300, check=False)
    assert done.returncode != 0, done
    return done.stderr.strip().splitlines()[-1]


@pytest.fixture(name="index")
def make_index():
    """An index whose certificate no authority has signed: its address and the certificate."""
    openssl = shutil.which("openssl")
    if not openssl:
        pytest.skip("not installed: openssl")
    with tempfile.TemporaryDirectory(prefix="cg-") as directory:
        key, certificate = (os.path.join(directory, name) for name in ("key", "certificate"))
        subprocess.run([openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key,
                        "-out", certificate, "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        os.mkdir(os.path.join(directory, "index"))
        handler = functools.partial(Quiet, directory=os.path.join(directory, "index"))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            served.socket = context.wrap_socket(served.socket, server_side=True)
            threading.Thread(target=served.serve_forever, daemon=True).start()
            yield "https://localhost:%d/simple" % served.server_port, certificate
            served.shutdown()


@pytest.mark.full
def test_certificate_error_is_named(tmp_path, index):
    address, certificate = index
    line = last_line(tmp_path, PIP_INDEX_URL=address)
    assert line.startswith("fetch-cuda: download failed: certificate verify failed"), line
    # With pip's own setting the certificate is accepted, and the error is that this index is empty.
    line = last_line(tmp_path, PIP_INDEX_URL=address, PIP_CERT=certificate)
    assert "certificate" not in line


def test_network_error_is_named(tmp_path):
    line = last_line(tmp_path, PIP_INDEX_URL=NOWHERE)
    assert line.startswith("fetch-cuda: download failed: ") and "Connection refused" in line, line


@pytest.mark.full
def test_missing_certificate_file_is_named(tmp_path):
    assert "/nonexistent.pem" in last_line(tmp_path, PIP_CERT="/nonexistent.pem")

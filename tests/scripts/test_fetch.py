# SPDX-License-Identifier: Apache-2.0
"""scripts/fetch-cuda, which a build needs, prints the true reason of a failure, and uses pip's
settings."""

import os
import subprocess
import sys

import pytest

from support import harness

SCRIPTS = os.path.join(harness.SOURCE, "scripts")
# pip's own line, before its "No matching distribution found".
CERTIFICATE = """WARNING: Retrying (Retry(total=0)) after connection broken by 'SSLError(\
SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: \
self-signed certificate (_ssl.c:992)'))': /simple/nvidia-cuda-crt/
ERROR: No matching distribution found for nvidia-cuda-crt==13.5.37
"""


@pytest.mark.parametrize(("name", "value", "reason"), [
    ("PIP_INDEX_URL", "http://127.0.0.1:1/simple", "Connection refused"),
    ("PIP_CERT", "/nonexistent.pem", "/nonexistent.pem")])
def test_reason_is_named(tmp_path, name, value, reason):
    env = {name: value for name, value in os.environ.items() if not name.startswith(
        ("PIP_", "UV_", "SSL_", "REQUESTS_", "CURL_", "HTTP", "http"))}
    env.update({"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "1", "NO_PROXY": "*",
                "HOME": str(tmp_path), name: value})
    done = subprocess.run([os.path.join(SCRIPTS, "fetch-cuda"), tmp_path / "deps", "13"], env=env,
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0, done
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("fetch-cuda: download failed: ") and reason in line, line


def test_certificate_error_is_named():
    script = os.path.join(SCRIPTS, "lib", "pip_reason.py")
    done = subprocess.run([sys.executable, script], input=CERTIFICATE, text=True,
                          capture_output=True, check=True)
    assert done.stdout == "certificate verify failed: self-signed certificate\n"

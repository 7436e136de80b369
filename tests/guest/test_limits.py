# SPDX-License-Identifier: Apache-2.0
"""These tests pin what the guard does not stop. tests/lab/limits.md documents it. (For the fence:
tests/fence. For setuid without /etc/ld.so.preload: test_privileged.py. For a file name that is not
found: test_install.py.)"""

from support import guest, harness


def test_limit_program_that_opens_the_device_itself_is_not_stopped():
    """The guard should not notice such a program either."""
    script = "import os\ntry: os.open('/dev/nvidiactl', os.O_RDWR)\nexcept OSError: print('none')\n"
    result = harness.run([guest.PYTHON, "-I", "-S", "-c", script])
    assert result.device_opens == ["/dev/nvidiactl"]
    assert (result.out, result.err) == ("none\n", "")

# SPDX-License-Identifier: Apache-2.0
"""A real Dask gives its workers the variables that docs/integrations writes into its configuration.
"""

import os

import pytest

from support import harness, places

pytestmark = pytest.mark.full  # needs a download

ASK = """import ctypes
import sys

import dask
from distributed import Client, LocalCluster


def ask():
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


if __name__ == "__main__":
    exec(sys.argv[1])
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            print("cuInit=%d" % client.submit(ask).result())
"""


class Dask(places.Case):
    def setUp(self):
        super().setUp()
        self.need_platforms()
        os.mkdir(self.path("home"))
        self.tree = places.usr_local(self.directory)
        (self.python,), (self.file,) = (places.blocks(language, "python", "Dask")
                                        for language in ("python", "yaml"))

    def worker(self, settings="", **env):
        """Returns the answer of a worker's task in a program that is not guarded itself."""
        path = self.make("ask.py", ASK, 0o644)
        result = harness.run([places.PLATFORMS + "/python", path, settings], guard=False,
                             trace=False, bwrap=[*self.tree, "--unshare-net"], cwd=self.directory,
                             env={"HOME": self.path("home"), "TMPDIR": self.directory, **env})
        self.assertEqual(result.rc, 0, result)
        return result.answers, result.fake_calls

    def test_control_worker_is_unguarded_by_default(self):
        self.reached(*self.worker())

    def test_setting_in_the_program_guards_workers(self):
        self.guarded(*self.worker(self.python))

    def test_setting_in_a_file_guards_workers(self):
        os.makedirs(self.path("home", ".config", "dask"))
        self.make("home/.config/dask/cudaguard.yaml", self.file, 0o644)
        self.guarded(*self.worker())

# SPDX-License-Identifier: Apache-2.0
# For repos/spack_repo/builtin/packages/cudaguard of spack-packages. A release has the address and
# the maintainer (scripts/packaging/fill-in); sha256 is that of its SHA256SUMS.
import sys

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Cudaguard(CMakePackage):
    """Run Linux programs without CUDA, and find the line that asks for it. No rebuild, root or
    GPU."""

    url = "cudaguard-0.2.0.tar.gz"

    license("Apache-2.0")

    version("0.2.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("rapidjson", type="build")

    requires("platform=linux")

    def cmake_args(self):
        return [self.define("CUDAGUARD_STATIC", False)]

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        # For `pytest -p cudaguard.pytest_plugin --cudaguard`.
        env.prepend_path("PYTHONPATH", self.prefix.share.cudaguard.python)

    def test_run(self):
        """a program finds no device"""
        cudaguard = Executable(self.prefix.bin.cudaguard)
        ask = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        answer = cudaguard("run", "--log", "off", "--", sys.executable, "-c", ask, output=str)
        assert answer == "100\n"

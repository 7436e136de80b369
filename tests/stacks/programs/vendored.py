# SPDX-License-Identifier: Apache-2.0
"""A package of others. Each function that `get` returns asks for CUDA, and code that a library has
generated calls it. Tests install this file as the package "vendored"."""

import ctypes
import dataclasses


# PyInstaller would bundle a library whose name it finds in the call.
DRIVER = "libcuda.so.1"


def cuda(*_):
    return ctypes.CDLL(DRIVER).cuInit(0)


def plain(x: int) -> int:
    return cuda(x)


class Asks:
    def __repr__(self):
        return str(cuda())

    def __eq__(self, other):
        return cuda()


@dataclasses.dataclass
class Holds:
    asks: Asks


def get(how):
    if how == "beartype":
        import beartype
        return beartype.beartype(plain)
    if how == "exec":
        names = {"plain": plain}
        exec("def wrapper(x):\n    return plain(x)", names)
        return names["wrapper"]
    if how == "dataclass":
        return lambda x: repr(Holds(Asks()))
    return plain

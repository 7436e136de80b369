# SPDX-License-Identifier: Apache-2.0
"""A JIT compiler has made code, a C++ library's threads throw, and forked workers ask for CUDA.

    asks_jit.py llvmlite|numba THROWER ROUNDS PATIENCE

Prints how many workers ended with which exit code (cuInit's answer) or by which signal.
"""

import collections
import ctypes
import os
import signal
import sys

FUNCTIONS = 50


def llvmlite():
    from llvmlite import binding
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine()
    engines = []
    for _ in range(FUNCTIONS):
        module = binding.parse_assembly("define i32 @f(i32 %x) uwtable { ret i32 %x }")
        engines.append(binding.create_mcjit_compiler(module, machine))
        engines[-1].finalize_object()
        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
        assert function(engines[-1].get_function_address("f"))(7) == 7
    return engines


def numba():
    from numba import njit, prange

    @njit(parallel=True)
    def total(count):
        result = 0
        for i in prange(count):
            result += i
        return result

    assert total(1000) == 499500  # its threads stay
    return total


kept = {"llvmlite": llvmlite, "numba": numba}[sys.argv[1]]()
driver = ctypes.CDLL("libcuda.so.1")
ctypes.CDLL(sys.argv[2]).begin()
ended = collections.Counter()
for _ in range(int(sys.argv[3])):
    child = os.fork()
    if child == 0:
        signal.alarm(int(sys.argv[4]))
        os._exit(driver.cuInit(0))
    ended[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
    if ended[-signal.SIGALRM] == 4:
        break
print(*("%s %d: %d" % ("signal" if code < 0 else "exit", abs(code), times)
        for code, times in sorted(ended.items())), sep="\n", flush=True)
os._exit(0)

# SPDX-License-Identifier: Apache-2.0
"""The null driver's log (cuLogs*) answers by the contract of cuda.h, and has no entries."""

from support import guest, harness

PROGRAM = r"""
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
called = []
callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p,
                            ctypes.c_size_t)(lambda *_: called.append(1))
handle, mark = ctypes.c_void_p(), ctypes.c_uint(7)
text, size = ctypes.create_string_buffer(b"own", 9), ctypes.c_size_t(9)
at = ctypes.byref
for _ in range(2):
    print(driver.cuLogsRegisterCallback(callback, None, at(handle)), bool(handle), driver.cuInit(0),
          driver.cuLogsCurrent(at(mark), 0), mark.value,
          driver.cuLogsDumpToMemory(None, text, at(size), 0), text.value, size.value,
          driver.cuLogsDumpToFile(at(mark), b"/nowhere/log", 0),
          driver.cuLogsUnregisterCallback(handle), called)
print(driver.cuLogsRegisterCallback(None, None, at(handle)), driver.cuLogsUnregisterCallback(None),
      driver.cuLogsCurrent(None, 0), driver.cuLogsCurrent(at(mark), 1),
      driver.cuLogsDumpToMemory(None, None, at(size), 0), driver.cuLogsDumpToMemory(None, text, None, 0),
      driver.cuLogsDumpToMemory(None, text, at(size), 1), driver.cuLogsDumpToFile(None, None, 0),
      driver.cuLogsDumpToFile(None, b"/nowhere/log", 1))
"""


def test_limit_log_of_the_null_driver_has_no_entries():
    result = harness.run([guest.PYTHON, "-c", PROGRAM], trace=False)
    assert result.out == (2 * "0 True 100 0 0 0 b'' 0 0 0 []\n" + " ".join(9 * "1") + "\n"), str(result)

# SPDX-License-Identifier: Apache-2.0
"""Loads two plug-ins with RTLD_LOCAL that are linked to runtimes of different major versions:

  together A B   both stay loaded and are called in turn
  replace A B    A, call, dlclose, B (perhaps at A's address), call, dlclose; three times
  tail A B       both loaded; their call of the runtime is in tail position
  threads A B    both loaded; eight threads call them in turn
"""

import _ctypes
import ctypes
import sys
import threading

how, *paths = sys.argv[1:]
if how == "replace":
    last = None
    for path in paths * 3:
        plugin = ctypes.CDLL(path)
        address = ctypes.c_size_t.from_address(plugin._handle).value  # of its link_map: l_addr
        print("sameAddress=%d" % (address == last), file=sys.stderr)
        last = address
        plugin.plugin_probe(1)
        _ctypes.dlclose(plugin._handle)
    sys.exit()
plugins = [ctypes.CDLL(path) for path in paths]
if how == "together":
    for plugin in plugins * 2:
        plugin.plugin_probe(1)
elif how == "tail":
    for plugin in plugins * 2:
        count = ctypes.c_int(-7)
        answer = plugin.plugin_tail(ctypes.byref(count))
        print("tail=%d:%d" % (answer, count.value))
else:
    threads = [threading.Thread(target=lambda: [plugin.plugin_probe(1) for plugin in plugins * 50])
               for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

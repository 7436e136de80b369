# SPDX-License-Identifier: Apache-2.0
"""Starts a Jupyter kernel as a notebook server does, runs cells in it and prints the answers.

notebook.py KERNEL prints key=value lines; NAME is what the cell NAME printed.
"""

import queue
import sys

from jupyter_client.manager import KernelManager

CELLS = {
    "pid": "import os; print(os.getpid())",
    "cuda": "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))",
    "child": "import subprocess, sys; print(subprocess.run([sys.executable, '-c', \"import ctypes;"
             "print(ctypes.CDLL('libcuda.so.1').cuInit(0))\"], capture_output=True, text=True)"
             ".stdout.strip())",
    "drivers": "print(sorted({line.split()[5] for line in open('/proc/self/maps')"
               " if 'libcuda.so' in line}))",
}
LIMIT = 60
PRESSES = 6


def printed(client, cell):
    """Runs a cell and returns what it prints on stdout."""
    texts = []

    def note(message):
        if message["content"].get("name") == "stdout":
            texts.append(message["content"]["text"])

    client.execute_interactive(cell, timeout=LIMIT, output_hook=note)
    return "".join(texts).strip()


def interrupted(manager, client):
    """Interrupts a running cell, as the interrupt button does, and returns the error's name.

    The kernel may hand SIGINT to a thread that is not Python's main thread, which does not end a
    sleep of the main thread. IPython can also lose a KeyboardInterrupt that is raised inside its
    own code. So the sleeps are short, and the button is pressed again, as a user would press it.
    """
    client.execute("import time\nprint('on', flush=True)\n"
                   "for _ in range(%d): time.sleep(0.1)" % (100 * LIMIT),
                   stop_on_error=False)  # otherwise ipykernel may abort the cell after it
    while client.get_iopub_msg(timeout=LIMIT)["msg_type"] != "stream":
        pass
    for _ in range(PRESSES):
        manager.interrupt_kernel()
        try:
            return client.get_shell_msg(timeout=LIMIT / PRESSES)["content"].get("ename")
        except queue.Empty:
            pass
    return "the kernel ignored %d interrupts" % PRESSES


def main():
    manager = KernelManager(kernel_name=sys.argv[1])
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=LIMIT)
        print("name=%s" % manager.kernel_spec.display_name.replace(" ", "_"))
        for name, cell in CELLS.items():
            print("%s=%s" % (name, printed(client, cell).replace(" ", "")))
        print("kernel=%d" % manager.provisioner.pid)
        print("interrupt=%s" % interrupted(manager, client))
        print("after=%s" % printed(client, "print(6 * 7)"))
        manager.shutdown_kernel(now=False)
        print("alive=%s" % manager.is_alive())
    except (queue.Empty, RuntimeError, TimeoutError) as error:
        print("failed=%r" % error)
    finally:
        client.stop_channels()
        if manager.is_alive():
            manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Starts uwsgi with four workers, waits until each has printed a line, sends one request and stops
uwsgi."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile

WORKERS = 4
HERE = os.path.dirname(os.path.abspath(__file__))

with tempfile.TemporaryDirectory(prefix="cg-") as directory:
    path = os.path.join(directory, "socket")
    server = subprocess.Popen(
        [sys.argv[1], "--master", "--processes", str(WORKERS), "--http-socket", path, "--need-app",
         # Without this setting, uwsgi kills a worker that waits for a request only 60 seconds after
         # SIGINT.
         "--worker-reload-mercy", "1", "--wsgi-file", os.path.join(HERE, "asks_uwsgi.py")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    spoken, log = {}, ""
    for line in server.stdout:
        log += line
        spoken.update(re.findall(r"^worker (\d+) (cuInit=\d+)$", line))
        if len(spoken) == WORKERS:
            break
    else:
        sys.exit("uwsgi ended:\n" + log)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        answer = b""
        while more := client.recv(4096):
            answer += more
    server.send_signal(signal.SIGINT)
    log += server.stdout.read()
    sys.stderr.writelines(re.findall(r"^cudaguard.*\n", log, re.MULTILINE))
    print(*("worker %s %s" % one for one in sorted(spoken.items())), sep="\n")
    print("request", answer.split(b"\r\n\r\n")[1].decode())
    print("end", server.wait())

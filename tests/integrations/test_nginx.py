# SPDX-License-Identifier: Apache-2.0
"""Debian's nginx with Lua, whose workers clear their environment before they serve a request."""

import os
import shutil

import pytest

from support import harness, verified
from support.observed import box

pytestmark = pytest.mark.full
MODULES = "/usr/lib/nginx/modules"
CONFIGURATION = """
load_module %(modules)s/ndk_http_module.so;
load_module %(modules)s/ngx_http_lua_module.so;
worker_processes 2;
pid %(directory)s/pid;
error_log %(directory)s/error.log;
events {}
http {
  access_log off;
  client_body_temp_path %(directory)s/a; proxy_temp_path %(directory)s/b;
  fastcgi_temp_path %(directory)s/c; uwsgi_temp_path %(directory)s/d; scgi_temp_path %(directory)s/e;
  server {
    listen unix:%(directory)s/socket;
    location /none { content_by_lua_block { ngx.say("none") } }
    location /attempt { content_by_lua_block {
      local ffi = require("ffi")
      ffi.cdef("int cuInit(unsigned);")
      ngx.say(ffi.load("libcuda.so.1").cuInit(0))
    } }
  }
}
"""
# nginx becomes a daemon. The script stops it, because verify waits for all processes.
SCRIPT = """
import http.client, os, signal, socket, subprocess, sys, time
subprocess.run(["nginx", "-c", "nginx.conf", "-p", ".", "-e", "error.log"], check=True)
connection = http.client.HTTPConnection("nginx")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect("socket")
connection.request("GET", "/" + sys.argv[1])
print("answer", connection.getresponse().read().decode().strip())
connection.close()
os.kill(int(open("pid").read()), signal.SIGQUIT)
"""


class Nginx(verified.Case):
    def setUp(self):
        super().setUp()
        if not shutil.which("nginx") or not os.path.exists(MODULES + "/ngx_http_lua_module.so"):
            harness.skip(self, "not installed: nginx-light, libnginx-mod-http-lua")
        self.make("nginx.conf", CONFIGURATION % {"modules": MODULES, "directory": self.directory})
        os.chmod(self.directory, 0o777)
        self.words = ["/usr/bin/python3", self.make("serve.py", SCRIPT)]

    def test_unguarded_worker_reaches_the_driver(self):
        unguarded = harness.run([*self.words, "attempt"], world="none", guard=False, trace=False,
                                cwd=self.directory, env=box.environment())
        self.assertIn("answer 0", unguarded.out, unguarded)

    def test_worker_that_asks_fails(self):
        result = self.verify([*self.words, "attempt"], cwd=self.directory)
        self.ends(result, 1, "FAIL: 1 place asked for CUDA, in 1 of ", "nginx: worker process")
        self.assertIn("answer 100", result.out)

    def test_worker_that_does_not_ask_passes(self):
        self.ends(self.verify([*self.words, "none"], cwd=self.directory), 0, "PASS: no CUDA use (")

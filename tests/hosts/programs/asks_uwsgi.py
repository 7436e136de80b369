# SPDX-License-Identifier: Apache-2.0
"""A program of uwsgi. The master has loaded the driver, and each worker asks after its fork and at
a request."""

import ctypes

import uwsgi

driver = ctypes.CDLL("libcuda.so.1")


def after_fork():
    print("worker %d cuInit=%d" % (uwsgi.worker_id(), driver.cuInit(0)), flush=True)


uwsgi.post_fork_hook = after_fork


def application(environment, start_response):
    start_response("200 OK", [])
    return [b"cuInit=%d" % driver.cuInit(0)]

# SPDX-License-Identifier: Apache-2.0
"""pytest's plug-in decides as `verify` does: tests/vectors/decisions.json has records, patterns,
and the records that fail. tests/unit/vectors_test.cpp asks `verify` the same."""

import json
import locale
import os
import sys
import types
import unittest

from support import settings

PACKAGES = os.path.join(settings.SOURCE, "shim", "python")


class Vectors(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, PACKAGES)
        self.addCleanup(sys.path.remove, PACKAGES)

    def test_exposed_library_is_no_attempt(self):
        from cudaguard import records
        record = {"v": 1, "pid": 7, "argv": ["train"], "api": "dlsym", "asked": "cuda",
                  "object": "/usr/lib/libcuda.so.1", "decision": "allow", "caller": "?"}
        self.assertIsNotNone(records.parse(json.dumps(record).encode()))
        record["event"] = "exposed"
        self.assertIsNone(records.parse(json.dumps(record).encode()))

    def test_plugin_decides_as_written(self):
        from cudaguard import pytest_plugin, records
        with open(os.path.join(settings.TESTS, "vectors", "decisions.json"),
                  encoding="utf-8") as stream:
            vectors = json.load(stream)
        self.assertGreater(len(vectors), 50)
        # The answer must not depend on the program's locale.
        self.addCleanup(locale.setlocale, locale.LC_ALL, locale.setlocale(locale.LC_ALL))
        for name in ("C", "C.UTF-8"):
            locale.setlocale(locale.LC_ALL, name)
            for vector in vectors:
                with self.subTest(vector["name"], locale=name):
                    attempts = [records.parse(json.dumps(record).encode())
                                for record in vector["records"]]
                    options = types.SimpleNamespace(denied=vector["deny"], allowed=vector["allow"])
                    bad = pytest_plugin.Watcher.bad(options, attempts)
                    self.assertEqual([i for i, attempt in enumerate(attempts) if attempt in bad],
                                     vector["fail"])

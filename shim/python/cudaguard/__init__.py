# SPDX-License-Identifier: Apache-2.0
"""cudaguard from Python: the guard that was preloaded into this process, and the records of touches.

`pytest --cudaguard` is in cudaguard.pytest_plugin.
"""

# SPDX-License-Identifier: Apache-2.0
"""Options of every test, and which tests run."""

import contextlib
import importlib
import os
import re
import resource
import signal
import sys
import tempfile

import pytest

from support import settings

SETTINGS = os.path.join(settings.TESTS, "pytest.ini")
AARCH64 = os.path.join(settings.TESTS, "aarch64")
NODE = "/dev/nvidiactl"
HAD_NODE = os.path.exists(NODE)
# The modules of tests/support whose Case has the helpers of an area's tests.
CASES = {"devices": "box", "fence": "fence", "guest": "guest", "integrations": "places",
         "launcher": "launcher", "packages": "packaged", "runtimes": "harness"}


@pytest.fixture(name="case")
def make_case(request):
    """The helpers of the area's Case."""
    from support import harness  # which reads the options

    module = importlib.import_module("support." + CASES[request.path.parent.name])
    yield from harness.lent(module.Case())


def pytest_addoption(parser):
    settings.add_options(parser.addoption)
    parser.addoption("--all", action="store_true", help="also the tests marked all")
    parser.addoption("--full", action="store_true", help="also the tests marked full; each test in "
                     "its full length")
    parser.addoption("--must-run", action="store_true", help="fail a test that lacks something "
                     "instead of skipping it")
    parser.addoption("--without", metavar="NEED", action="append", default=[], help="with "
                     "--must-run: a test may still skip if it lacks NVIDIA's driver (driver) or this "
                     "need of support/machine.py")
    parser.addoption("--runner", metavar="COMMAND", help="runs each program (tests/aarch64)")
    parser.addoption("--write-golden", action="store_true", help="rewrite the golden files")


def pytest_configure(config):
    if not config.inipath or not config.inipath.samefile(SETTINGS):
        raise pytest.UsageError("%s is not read: write each option as --name=value" % SETTINGS)
    if "support.harness" in sys.modules:
        raise pytest.UsageError("a conftest.py has imported support.harness, which has read the "
                                "options before they were known: import it in the fixture")
    option = config.option
    settings.configure(option.build, option.lib, option.deps, option.full, option.must_run,
                       option.without, option.runner, option.write_golden,
                       option.all or option.full)
    # pytest compiles the test files once. It is not a variable, because other Pythons would read it.
    sys.pycache_prefix, sys.dont_write_bytecode = os.path.join(settings.BUILD, "pycache"), False
    # "python3" must be this Python. pyenv's is a shell script, which takes longer than most tests.
    os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]
    # A shell's background job ignores SIGINT and SIGQUIT, and nohup's SIGHUP. The programs under test
    # would inherit that, but they do not inherit a handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def pytest_make_parametrize_id(val):
    """The words of a list and the settings of a dictionary, so that -k finds them."""
    if isinstance(val, dict):
        val = ["%s=%s" % item for item in val.items()]
    if isinstance(val, (list, tuple)):
        val = " ".join(map(str, val)) or "none"
    if not isinstance(val, str):
        return None  # pytest's own
    val = val.replace(settings.BUILD + "/", "")
    return val if len(val) <= 80 else val[:77] + "..."


def pytest_ignore_collect(collection_path, config):
    """tests/aarch64 runs by itself, with the programs of its own build directory."""
    if str(collection_path) == AARCH64 and not config.option.runner:
        return True
    return None


def pytest_collection_modifyitems(config, items):
    # A pytest that a test starts rejects these options. xdist's workers have read them by now.
    os.environ.pop("PYTEST_ADDOPTS", None)
    # The areas are mixed, because tests that wait should run beside tests that work.
    items.sort(key=lambda item: item.path.name, reverse=True)
    if config.option.full:
        return
    left_out = ("full",) if config.option.all else ("full", "all")
    omitted = [item for item in items if any(map(item.get_closest_marker, left_out))]
    config.hook.pytest_deselected(items=omitted)
    omitted = set(omitted)
    items[:] = [item for item in items if item not in omitted]


def pytest_sessionstart():
    from support import harness, machine  # which read the options

    # Tests put libraries there, and ld.so splits LD_PRELOAD at a space; sockets, whose paths must be
    # short; and what other users need. The sandbox has a /dev of its own.
    directory = tempfile.gettempdir()
    if not (re.fullmatch(r"(?!/dev/)[^\s:]{1,30}", directory) and
            harness.reachable(os.path.join(directory, "x"))):
        tempfile.tempdir = os.environ["TMPDIR"] = "/tmp"
    # The search for leaks of the sanitized test programs traces them.
    if machine.missing("tracing"):
        os.environ.setdefault("LSAN_OPTIONS", "detect_leaks=0")


def pytest_runtest_setup(item):
    from support import machine  # which reads the options

    for marker in item.iter_markers("needs"):
        machine.need(*marker.args)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown():
    """Root's process that enters NVIDIA's driver makes the node, which changes later tests."""
    if os.path.exists(NODE) and not HAD_NODE:
        with contextlib.suppress(FileNotFoundError):  # the test beside it
            os.unlink(NODE)
        pytest.fail("this test, or one beside it, has entered NVIDIA's driver without a /dev of its own",
                    pytrace=False)


@pytest.hookimpl(optionalhook=True)  # without xdist
def pytest_xdist_auto_num_workers():
    """Three times as many as cores, because some tests wait more than they work."""
    return 3 * os.cpu_count()

# SPDX-License-Identifier: Apache-2.0
"""A pattern of Text::print that does not fit its arguments does not compile, because it would crash
the user's process."""

import subprocess

import pytest

from support import harness

PROGRAM = """
#include "policy/text.h"
void write(cudaguard::Text& out, std::string_view view, const char* text, uint64_t number, int device,
           const char* pattern) {
  out.print(%s);
}
"""


def compiled(tmp_path, arguments):
    source = tmp_path / "pattern.cpp"
    source.write_text(PROGRAM % arguments, encoding="utf-8")
    return subprocess.run(["g++", "-std=c++20", "-fsyntax-only", "-I", harness.SOURCE, str(source)],
                          capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [
    '"plain"', '"%s and %n, %l"  , view, view, view', '"%c%c", text, "literal"', '"%u", number'])
def test_control_pattern_that_fits_compiles(tmp_path, arguments):
    done = compiled(tmp_path, arguments)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [
    '"%s", number', '"%s", text', '"%c", view', '"%u", view', '"%u", text', '"%u", device',
    '"%u"', '"plain", number', '"%u%u", number', '"%x", number', '"%", number'])
def test_pattern_that_does_not_fit_does_not_compile(tmp_path, arguments):
    done = compiled(tmp_path, arguments)
    assert done.returncode == 1
    assert "pattern_does_not_fit_its_arguments" in done.stderr, done.stderr


def test_pattern_that_is_not_known_to_the_compiler_does_not_compile(tmp_path):
    done = compiled(tmp_path, "pattern, number")
    assert done.returncode == 1
    assert "constant expression" in done.stderr, done.stderr

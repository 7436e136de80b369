# SPDX-License-Identifier: Apache-2.0
"""tests/lab/results/programs.md: each row is a program of programs.py in the tested version, and a new
measurement gives the same row. The tests that the rows name check the other programs."""

import os
import unittest

import pytest

from support import framework, harness, programs, settings

QUICK = [
    program for program in programs.PROGRAMS if program.name in ("nvidia-ml-py", "Python, ctypes")
]


def cells(row):
    return [cell.strip() for cell in row.strip("|").split(" | ")]


class Table(unittest.TestCase):
    def setUp(self):
        with open(programs.PAGE, encoding="utf-8") as stream:
            self.rows = programs.rows_of(stream.read())
        self.assertGreater(len(self.rows), 20)

    def test_rows_are_the_programs_and_show_no_guarded_try(self):
        self.assertEqual(list(self.rows), [program.name for program in programs.PROGRAMS])
        for row in self.rows.values():
            name, _, unguarded, guarded, who, _ = cells(row)
            self.assertGreater(int(unguarded), 0, name)
            self.assertEqual(int(guarded), 0, name)
            self.assertTrue(who.startswith("`"), name)

    def test_versions_are_those_of_the_pins(self):
        """The page has the versions of the pins. Debian's are not compared, because they change."""
        for program in programs.PROGRAMS:
            if program.environment and program.environment != "pycuda":
                self.assertEqual(cells(self.rows[program.name])[1], program.version())
        jax = programs.Program("JAX", "jax", "", "", "jax").version()
        with open(programs.PAGE, encoding="utf-8") as stream:
            self.assertIn(" JAX %s " % jax, stream.read())

    def test_named_tests_exist(self):
        """Each test that the table names exists."""
        for program in programs.PROGRAMS:
            self.assertTrue(os.path.exists(os.path.join(settings.TESTS, program.test)), program.test)

    def test_every_fetched_environment_is_in_the_table(self):
        """The table has every environment that is fetched to run a program, except JAX, which has
        its own sentence."""
        others = {"jax", "libraries", "jupyter", "pytest", "duckdb", "platforms", "gpustat-1.0",
                  "ray", "gunicorn", "dotnet", "generated", "bundlers", "onnxruntime-old",
                  "onnxruntime-new"}
        fetched = {name[:-3] for name in os.listdir(os.path.join(framework.HERE, "requirements"))
                   if name.endswith(".in")}
        self.assertEqual(fetched - others, {program.environment for program in programs.PROGRAMS} -
                         {None})


@pytest.fixture(name="page", scope="module")
def make_page():
    """The table's rows. pytest --write-golden rewrites it first."""
    harness.Case().need_real_driver()
    if settings.WRITE_GOLDEN:
        print("\n".join(programs.write_table()))
    with open(programs.PAGE, encoding="utf-8") as stream:
        return programs.rows_of(stream.read())


@pytest.mark.parametrize("program", QUICK, ids=lambda program: program.name)
def test_measuring_again_gives_the_same_row(case, page, program):
    row, why = programs.measure(program, harness.BUILD)
    if row is None:
        harness.skip(case, why)
    tries = cells(row)[2:4]
    assert tries[1] == "0"
    # Root made the table and also tries to create the device node.
    if os.geteuid() == 0 and harness.have_reference_driver():
        assert tries == cells(page[program.name])[2:4]
    else:
        assert int(tries[0]) > 0

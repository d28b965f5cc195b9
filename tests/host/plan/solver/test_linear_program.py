import ctypes
import os

import highspy
import pytest

from iswitch.plan.solver.linear_program import INFINITY, LinearProgram


def test_a_linear_program_by_hand():
    """max 3x + 2y, x + y <= 4, x + 3y <= 7, x <= 3: at (3, 1), where the first row is worth 2."""
    program = LinearProgram()
    x, y = program.add_variable(0, 3, cost=-3), program.add_variable(cost=-2)
    rows = program.add_row({x: 1, y: 1}, -INFINITY, 4), program.add_row({x: 1, y: 3}, -INFINITY, 7)
    found = program.solve()
    assert (found.status, found.objective, found.values) == ("optimal", pytest.approx(-11), pytest.approx([3, 1]))
    assert found.bound == pytest.approx(-11)
    assert [-found.duals[row] for row in rows] == pytest.approx([2, 0])


def test_an_integer_program_and_its_relaxation():
    """The program is a knapsack problem."""
    program = LinearProgram()
    things = [program.add_variable(0, 1, integer=True, cost=-value) for value in (10, 13, 7)]
    program.add_row(dict(zip(things, (3, 4, 2))), 0, 6)
    assert program.solve().objective == pytest.approx(-20)
    assert program.solve(relaxed=True).objective == pytest.approx(-20.5, abs=0.6)
    assert program.solve(relaxed=True).objective <= -20 and program.solve(start=[0, 1, 1]).values == pytest.approx(
        [0, 1, 1]
    )


def test_an_infeasible_program_is_reported():
    program = LinearProgram()
    x = program.add_variable(0, 1, integer=True)
    program.add_row({x: 1.0}, 2, 3)
    assert program.solve().status == "infeasible"


def test_what_highs_prints_of_itself_is_not_in_the_output(monkeypatch, capfd):
    """HiGHS 1.16 prints its version, from C, when the first solver of a process is made."""
    highs, c = highspy.Highs, ctypes.CDLL(None)

    def talkative() -> highspy.Highs:
        c.puts(b"Running HiGHS")
        return highs()

    monkeypatch.setattr(highspy, "Highs", talkative)
    program = LinearProgram()
    program.add_variable(0, 1, cost=-1)
    c.puts(b"before")
    assert program.solve().values == pytest.approx([1])
    c.puts(b"after")
    c.fflush(None)
    os.write(1, b"end\n")
    assert capfd.readouterr().out == "before\nafter\nend\n"

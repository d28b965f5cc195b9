"""Mutants are single errors of the kinds that the table of operators names, and a seed chooses the same ones again."""

import ast
from pathlib import Path

import pytest

from sim.mutation.components import COMPONENTS
from sim.mutation.operators import OPERATORS, mutants, sample

ROOT = Path(__file__).parents[3]


def wrong(source: str) -> list[str]:
    """The mutants of one statement, as source text."""
    return sorted({ast.unparse(ast.parse(mutant.source)) for mutant in mutants(source)})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a & b", ["x = a | b"]),
        ("x = a ^ b", ["x = a | b"]),
        ("x = a << b", ["x = a >> b"]),
        ("x = a == b", ["x = a != b"]),
        ("x = a < b", ["x = a <= b", "x = a >= b"]),
        ("x = a >= b", ["x = a < b", "x = a > b"]),
        ("x = a is b", ["x = a is not b"]),
        ("x = 3", ["x = 2", "x = 4"]),
        ("x = True", ["x = False"]),
        ("x = ~a", ["x = a"]),
        ("x = not a", ["x = a"]),
        ("x = Mux(a, b, c)", ["x = Mux(a, c, b)"]),
        ("x = b if a else c", ["x = c if a else b"]),
        ("x = a.any()", ["x = a.all()"]),
        ("x = min(a, b)", ["x = max(a, b)"]),
        ("x = a and b", ["x = a or b"]),
        ("with m.If(a):\n    pass", ["with m.If(a == 0):\n    pass"]),
        ("if a:\n    x = b", ["if not a:\n    x = b"]),
        ("while a:\n    x = b", ["while not a:\n    x = b"]),
        ("m.d.comb += x.eq(a)", ["m.d.comb += []", "m.d.sync += x.eq(a)"]),
        ("m.d.rx += [x.eq(a), y.eq(b)]", ["m.d.rx += [x.eq(a)]", "m.d.rx += [y.eq(b)]"]),
        ("m.d[domain] += x.eq(a)", ["m.d[domain] += []"]),
        ("x += a", ["pass", "x -= a"]),
        ("f(a)", ["pass"]),
        ("self.x = a", ["pass"]),
        ("break", ["pass"]),
        ("raise ValueError(1 + 1)", ["pass"]),
        ("class A:\n    x: 2", ["class A:\n    x: 1"]),
        ("class A:\n    x: In(2)", ["class A:\n    x: In(1)"]),
        ("x = Signal(signed(9))", ["x = Signal(signed(8))"]),
        # What has no place
        ('"""1 + 1."""', []),
        ("import a", []),
        ("__all__ = [1]", []),
        ("x = f'{a + b}'", []),
        ("x: int | None = a", []),
        ("def f(a: int | None) -> 1 + 1:\n    return a", []),
        ("x = zip(a, b, strict=True)", []),
        ("assert a == 1", []),
    ],
)
def test_a_statement_has_the_mutants_of_its_operators(source, expected):
    assert wrong(source) == expected


@pytest.mark.parametrize("component", COMPONENTS)
def test_mutants_of_a_component_are_named_compile_and_differ(component):
    source = (ROOT / component).read_text()
    made = mutants(source)
    assert len({mutant.name for mutant in made}) == len(made) > 0
    assert {mutant.operator for mutant in made} <= OPERATORS.keys()
    tree = ast.dump(ast.parse(source))
    for mutant in sample(made, 20, 0):
        assert ast.dump(ast.parse(mutant.source)) != tree
        compile(mutant.source, component, "exec")


def test_every_operator_of_the_table_has_mutants():
    made = {mutant.operator for component in COMPONENTS for mutant in mutants((ROOT / component).read_text())}
    assert made == OPERATORS.keys()


def test_only_the_place_differs_in_the_text():
    source = "x = 'é', a  # é\nif b:\n    y = (c &\n         d)  # rest\nz = 'ö'\n"
    (swapped,) = [mutant.source for mutant in mutants(source) if mutant.operator == "operator"]
    assert swapped == "x = 'é', a  # é\nif b:\n    y = ((c | d))  # rest\nz = 'ö'\n"


def test_the_same_seed_chooses_the_same_mutants_and_a_larger_sample_begins_with_the_smaller():
    source = (ROOT / "hw/decide/claims.py").read_text()
    names = lambda count, seed: [mutant.name for mutant in sample(mutants(source), count, seed)]
    assert len(names(60, 1)) == 60
    assert names(30, 1) == names(30, 1) == names(60, 1)[:30]
    assert set(names(30, 1)) != set(names(30, 2))


def test_a_mutant_keeps_its_name_when_other_functions_and_comments_change():
    before = {mutant.name for mutant in mutants("def f(a, b):\n    return a & b\n")}
    after = {
        mutant.name for mutant in mutants("def g(a):\n    return a | 1\n\n\n# why\ndef f(a, b):\n    return (a & b)\n")
    }
    assert len(before) == 1 and before < after

"""The small errors that mutants have: operators of mutation for Amaranth and for Python.

A mutant differs from its source in one place. Docstrings, messages of exceptions, f-strings, imports, decorators and
type hints have no places. A width is made one bit less and never one bit more, because a record or a port with a bit
more computes the same.
"""

import ast
import copy
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

__all__ = ["OPERATORS", "Mutant", "mutants", "sample"]

SWAPPED_BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
SWAPPED_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
SWAPPED_NAMES = {"any": "all", "all": "any", "min": "max", "max": "min"}
SWAPPED_DOMAINS = {"sync": "comb", "comb": "sync"}
SHAPES = {"In", "Out", "Signal", "signed", "unsigned"}
"""Functions whose numbers are widths."""
SHOWN = range(24, 120)
"""A mutant is shown with so much around its place: at least as many characters, and never more."""

OPERATORS = {
    "operator": "`&` and `|`, `+` and `-`, `<<` and `>>`, `*` and `//` swapped; `|` for `^`, `//` for `%`",
    "comparison": "`==` and `!=`, `<` and `<=`, `>` and `>=`, `<` and `>=`, `<=` and `>`, `in` and `not in` swapped",
    "constant": "a number one more or less, `True` and `False` swapped; of a width only one less",
    "dropped sign": "`~`, `-` or `not` left out",
    "swapped arms": "the arms of `Mux(...)` or of `a if c else b` swapped",
    "any and all": "`any` and `all`, `min` and `max` swapped",
    "logic": "`and` and `or` swapped",
    "condition": "the condition of `m.If`, `m.Elif`, `if` or `while` negated",
    "assignment": "one `.eq` of an assignment to a domain left out, or all if they are not a list",
    "domain": "`m.d.comb` and `m.d.sync` swapped",
    "statement": "a call, an assignment to an attribute or to an item, an update like `+=`, or a jump left out",
}
"""Operators of mutation, and what each one does."""


@dataclass(frozen=True)
class Mutant:
    """A source text with one error.

    Attributes
    ----------
    operator : str
        Which of `OPERATORS` made it.
    where : str
        Class and function of the place, with dots between them, or an empty string.
    line : int
        Line of the place.
    original, wrong : str
        The place and what is around it, on one line, without and with the error; `wrong` is empty if the place is left
        out.
    occurrence : int
        Number of the mutants before it that have the same operator, function and texts.
    source : str
        The whole text.
    """

    operator: str
    where: str
    line: int
    original: str
    wrong: str
    occurrence: int
    source: str = field(repr=False)

    @property
    def name(self) -> str:
        """The mutant's name: the same as long as its function has the same text at this place."""
        return self._digest("")[:8]

    def _digest(self, seed: object) -> str:
        parts = [str(seed), self.operator, self.where, self.original, self.wrong, str(self.occurrence)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def changed(node: ast.AST, **fields: object) -> ast.AST:
    """Return a copy of a node in which some fields are others. The nodes below are the same."""
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def negated(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), node)


def is_zero(node: ast.expr) -> ast.expr:
    return ast.Compare(node, [ast.Eq()], [ast.Constant(0)])


def is_domain(node: ast.expr) -> bool:
    """Return True for `m.d.sync` and the like, and for `m.d[domain]`."""
    return (
        isinstance(node, (ast.Attribute, ast.Subscript))
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "d"
    )


def shapes(node: ast.AST) -> list[ast.expr]:
    """Return the expressions right below a node whose numbers are widths."""
    match node:
        case ast.AnnAssign(annotation=annotation):
            return [annotation]
        case ast.Call(func=ast.Name(name), args=args) if name in SHAPES:
            return args
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name("super"))), args=[ast.Dict(values=values)]):
            return values
    return []


def in_expression(node: ast.expr, is_width: bool) -> Iterator[tuple[str, ast.AST]]:
    """Yield what may stand in the place of an expression, with the operator's name."""
    match node:
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            if not is_width:
                yield "constant", ast.Constant(value + 1)
            if not is_width or value > 0:
                yield "constant", ast.Constant(value - 1)
        case ast.BinOp(op=op) if type(op) in SWAPPED_BINARY:
            yield "operator", changed(node, op=SWAPPED_BINARY[type(op)]())
        case ast.BoolOp(op=op):
            yield "logic", changed(node, op=ast.And() if isinstance(op, ast.Or) else ast.Or())
        case ast.Compare(ops=ops):
            for k, comparison in enumerate(ops):
                for other in SWAPPED_COMPARISONS[type(comparison)]:
                    yield "comparison", changed(node, ops=[*ops[:k], other(), *ops[k + 1 :]])
        case ast.UnaryOp(op=ast.Invert() | ast.Not() | ast.USub(), operand=operand):
            yield "dropped sign", operand
        case ast.IfExp(body=body, orelse=orelse):
            yield "swapped arms", changed(node, body=orelse, orelse=body)
        case ast.Call(func=ast.Name("Mux"), args=[condition, yes, no]):
            yield "swapped arms", changed(node, args=[condition, no, yes])
        case ast.Call(func=ast.Attribute(attr=("any" | "all") as name), args=[]):
            yield "any and all", changed(node, func=changed(node.func, attr=SWAPPED_NAMES[name]))
        case ast.Call(func=ast.Name(("any" | "all" | "min" | "max") as name)):
            yield "any and all", changed(node, func=ast.Name(SWAPPED_NAMES[name]))
        case ast.Call(func=ast.Attribute(value=ast.Name("m"), attr="If" | "Elif"), args=[condition]):
            yield "condition", changed(node, args=[is_zero(condition)])


def in_statement(node: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """Yield what may stand in the place of a simple statement, with the operator's name."""
    match node:
        case ast.AugAssign(target=target, value=value) if is_domain(target):
            items = value.elts if isinstance(value, ast.List) else []
            for k in range(len(items)):
                yield "assignment", changed(node, value=ast.List([*items[:k], *items[k + 1 :]]))
            if not items:
                yield "assignment", changed(node, value=ast.List([]))
            if isinstance(target, ast.Attribute) and target.attr in SWAPPED_DOMAINS:
                yield "domain", changed(node, target=changed(target, attr=SWAPPED_DOMAINS[target.attr]))
        case ast.AugAssign(op=op):
            if type(op) in SWAPPED_BINARY:
                yield "operator", changed(node, op=SWAPPED_BINARY[type(op)]())
            yield "statement", ast.Pass()
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Break() | ast.Continue() | ast.Raise():
            yield "statement", ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement", ast.Pass()


class Places(ast.NodeVisitor):
    """Collects, for each place of a tree, its function, the nodes around it and what may stand there."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str, list[ast.AST], ast.expr | ast.stmt, ast.AST]] = []
        self._names: list[str] = []
        self._around: list[ast.AST] = []
        self._widths: set[int] = set()

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.expr):
            self._widths.update(map(id, shapes(node)))
            self._add(node, in_expression(node, id(node) in self._widths))
        elif isinstance(node, ast.stmt):
            self._add(node, in_statement(node))
        if isinstance(node, (ast.If, ast.While)):
            self._around.append(node)
            self._add(node.test, [("condition", negated(node.test))])
            self._around.pop()
        self._around.append(node)
        super().generic_visit(node)
        self._around.pop()

    def _add(self, node: ast.expr | ast.stmt, replacements: Iterable[tuple[str, ast.AST]]) -> None:
        for operator, replacement in replacements:
            self.found.append((operator, ".".join(self._names), list(self._around), node, replacement))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._names.append(node.name)
        self._around.append(node)
        for inner in node.body:
            self.visit(inner)
        self._around.pop()
        self._names.pop()

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._around.append(node)
        self._widths.update(map(id, shapes(node)))
        if isinstance(node.annotation, (ast.Constant, ast.Call)):
            self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
        self._around.pop()

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node, in_statement(node))

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":
            self.generic_visit(node)

    def _ignore(self, node: ast.AST) -> None:
        pass

    visit_Import = visit_ImportFrom = visit_JoinedStr = visit_Assert = _ignore


def shown(around: list[ast.AST], node: ast.AST, replacement: ast.AST) -> tuple[str, str]:
    """Return the place without and with the error, in the smallest part around it that is long enough to be found."""
    match node, replacement:
        case ast.AugAssign(value=ast.List(elts=items)), ast.AugAssign(value=ast.List(elts=rest)) if rest != items:
            (missing,) = [item for item in items if item not in rest]
            return ast.unparse(missing), ""
    before, after = node, replacement
    for outer in reversed(around):
        if isinstance(before, ast.stmt) or len(ast.unparse(before)) >= SHOWN.start:
            break
        if not isinstance(outer, (ast.expr, ast.keyword, ast.comprehension, ast.Assign, ast.AnnAssign, ast.AugAssign)):
            break
        if len(ast.unparse(outer)) >= SHOWN.stop:
            if isinstance(outer, ast.Dict):
                for key, value in zip(outer.keys, outer.values):
                    if value is before and key is not None:
                        text = ast.unparse(key)
                        return f"{text}: {ast.unparse(before)}", f"{text}: {ast.unparse(after)}"
            break
        before, after = outer, exchanged(outer, before, after)
    return cut(ast.unparse(before)), "" if isinstance(after, ast.Pass) else cut(ast.unparse(after))


def cut(text: str) -> str:
    """Return a text, or the beginning of a long one."""
    return text if len(text) < SHOWN.stop else text[: SHOWN.stop - 4] + " ..."


def exchanged(outer: ast.AST, inner: ast.AST, other: ast.AST) -> ast.AST:
    """Return a copy of `outer` with `other` in the place of `inner`, which is a field of `outer` or an item of one."""
    made = copy.copy(outer)
    for name, value in ast.iter_fields(outer):
        if value is inner:
            setattr(made, name, other)
        elif isinstance(value, list):
            setattr(made, name, [other if item is inner else item for item in value])
    return made


def spliced(lines: list[bytes], node: ast.expr | ast.stmt, replacement: ast.AST) -> str:
    """Return the text in which a node has been replaced, and nothing else. Columns count bytes."""
    text = ast.unparse(replacement)
    if isinstance(node, ast.expr):
        text = f"({text})"
    assert node.end_lineno is not None
    first, last = node.lineno - 1, node.end_lineno - 1
    begin, end = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    return b"".join([*lines[:first], begin, text.encode(), end, *lines[last + 1 :]]).decode()


def mutants(source: str) -> list[Mutant]:
    """Return all mutants of a source text, in the order of their places."""
    places = Places()
    places.visit(ast.parse(source))
    lines = source.encode().splitlines(keepends=True)
    made: list[Mutant] = []
    counts: dict[tuple[str, str, str, str], int] = {}
    for operator, where, around, node, replacement in places.found:
        original, wrong = shown(around, node, replacement)
        key = (operator, where, original, wrong)
        counts[key] = counts.get(key, -1) + 1
        made.append(Mutant(*key[:2], node.lineno, *key[2:], counts[key], spliced(lines, node, replacement)))
    return made


def sample(made: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return `count` of the mutants, or all, as the seed chooses them and in its order.

    A larger sample with the same seed begins with the smaller one. A change of the source elsewhere leaves a mutant in
    the sample, unless others that the change adds come before it.
    """
    return sorted(made, key=lambda mutant: mutant._digest(seed))[:count]

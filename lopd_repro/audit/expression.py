"""Small arithmetic over printed cells: `table1[A,LOPD,acc] - table1[A,best!LOPD,acc] = 1.9`.

A cell is called by file and key. `best!NAME` in the place of a method means the best printed
cell of that column among all other methods of the same backbone. Beside cells there are numbers,
`+ - * /` and brackets. A check joins two expressions by `=`, `>`, `<`, `>=`, `<=`, or by `~` with
a tolerance: `figure5[k,8] / 100 ~ 0.56 within 0.01`.

Each expression is worked out twice: with the printed numbers at face value, and with everything
that a cell can stand for (its recovered count where there is one, its rounding interval
otherwise) by interval arithmetic.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from lopd_repro.audit.paper import Cell, Paper
from lopd_repro.audit.printed import Rounding, parse_printed, print_number

_CELL = re.compile(r"([A-Za-z_]\w*)\[([^\[\]]*)\]")
_RELATION = re.compile(r"(>=|<=|=|>|<|~)")
_LITERAL = re.compile(r"^\s*-?\d+(\.\d+)?\s*$")


class Verdict(Enum):
    """What the printed numbers make of a claim, or of one part of it."""

    FOLLOWS = "follows from the printed cells"
    CONSISTENT = "consistent"
    NOT_DECIDABLE = "not decidable from what is printed"
    CONTRADICTED = "contradicted by the paper's own numbers"


RANK = {verdict: place for place, verdict in enumerate(Verdict)}
"""A claim gets the verdict of its weakest part; later in this order is weaker."""


@dataclass(frozen=True)
class Value:
    """A number at face value and the interval of what it may stand for."""

    face: Fraction
    low: Fraction
    high: Fraction

    @property
    def point(self) -> bool:
        """Whether the number behind the print is known exactly."""
        return self.low == self.high


CellValue = Callable[[Cell], Value]


@dataclass(frozen=True)
class Checked:
    """The outcome of one check, with its arithmetic written out and the cells it used."""

    verdict: Verdict
    arithmetic: str
    cells: tuple[str, ...]
    left: Value
    right: Value
    relation: str
    face_only: bool = False
    """True of the printed digits, but not of the counts recovered behind them."""


class ExpressionError(ValueError):
    """An expression that cannot be read, or that names a cell which does not exist."""


def find_cell(paper: Paper, ref: str) -> Cell:
    """The cell of a reference, `best!NAME` resolved; `ExpressionError` if there is none."""
    match = _CELL.fullmatch(ref.strip())
    if match is None:
        raise ExpressionError(f"{ref!r} is not a cell; write file[key,...]")
    table = paper.tables.get(match[1])
    if table is None:
        raise ExpressionError(f"cell {ref} does not exist: no file is called {match[1]}")
    key = tuple(part.strip() for part in match[2].split(","))
    if table.kind == "scores" and len(key) == 3 and key[1].startswith("best!"):
        excluded = key[1].removeprefix("best!")
        if excluded not in table.methods():
            raise ExpressionError(f"cell {ref} does not exist: no method is called {excluded}")
        return best_rival(paper, table.name, key[0], key[2], excluded)
    cell = paper.cells.get(f"{match[1]}[{','.join(key)}]")
    if cell is None:
        raise ExpressionError(f"cell {ref} does not exist")
    return cell


def best_rival(paper: Paper, table: str, backbone: str, metric: str, excluded: str) -> Cell:
    """The best printed cell of a row group's column, one method left out; the first of a tie."""
    rivals = [
        cell
        for cell in paper.tables[table].column(metric)
        if cell.key[0] == backbone and cell.key[1] != excluded
    ]
    if not rivals:
        raise ExpressionError(f"cell {table}[{backbone},best!{excluded},{metric}] does not exist")
    sign = 1 if paper.metrics[metric].higher_is_better else -1
    return max(rivals, key=lambda cell: sign * cell.printed.face)


def evaluate(paper: Paper, text: str, value: CellValue) -> tuple[Value, str, tuple[Cell, ...]]:
    """An expression's value, the expression with printed numbers put in, and its cells."""
    cells: list[Cell] = []

    def name(match: re.Match[str]) -> str:
        cells.append(find_cell(paper, match[0]))
        return f"cell_{len(cells) - 1}"

    code = _CELL.sub(name, text)
    try:
        tree = ast.parse(code.strip(), mode="eval").body
    except SyntaxError:
        raise ExpressionError(f"{text.strip()!r} cannot be read") from None
    result = _walk(tree, [value(cell) for cell in cells], code, text)
    shown = re.sub(r"cell_(\d+)", lambda m: cells[int(m[1])].printed.text, code).strip()
    return result, shown, tuple(cells)


def _walk(node: ast.expr, cells: list[Value], code: str, text: str) -> Value:
    if isinstance(node, ast.Name) and (match := re.fullmatch(r"cell_(\d+)", node.id)):
        return cells[int(match[1])]
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        number = parse_printed(ast.get_source_segment(code.strip(), node) or str(node.value)).face
        return Value(number, number, number)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _walk(node.operand, cells, code, text)
        return Value(-inner.face, -inner.high, -inner.low)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        return _combine(
            node.op, _walk(node.left, cells, code, text), _walk(node.right, cells, code, text)
        )
    raise ExpressionError(f"{text.strip()!r} cannot be read: only + - * / and brackets")


def _combine(op: ast.operator, a: Value, b: Value) -> Value:
    if isinstance(op, ast.Add):
        return Value(a.face + b.face, a.low + b.low, a.high + b.high)
    if isinstance(op, ast.Sub):
        return Value(a.face - b.face, a.low - b.high, a.high - b.low)
    if isinstance(op, ast.Mult):
        ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return Value(a.face * b.face, min(ends), max(ends))
    if b.low <= 0 <= b.high:
        raise ExpressionError("division by a number that may be 0")
    ends = [x / y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Value(a.face / b.face, min(ends), max(ends))


def check(paper: Paper, text: str, value: CellValue) -> Checked:
    """Judge one relation; see the module's text for what it may hold."""
    tolerance = Fraction(0)
    body, within, tail = text.partition(" within ")
    if within:
        tolerance = _number(tail, text)
    parts = _RELATION.split(body)
    if len(parts) != 3:
        raise ExpressionError(f"{text!r} is not one relation: left, one of = > < >= <= ~, right")
    relation = parts[1]
    if (relation == "~") != bool(within):
        raise ExpressionError(f"{text!r}: ~ and 'within' belong together")
    left, shown_left, cells_left = evaluate(paper, parts[0], value)
    right, shown_right, cells_right = evaluate(paper, parts[2], value)
    cells = (*cells_left, *cells_right)
    if relation != "=":
        shown_left, shown_right = _worked(shown_left, left), _worked(shown_right, right)
    arithmetic, face_only = f"{shown_left} {relation} {shown_right}", False
    if relation == "~":
        arithmetic += f" within {tail.strip()}"
        verdict = _near(left, right, tolerance)
    elif relation == "=":
        literal = parts[2].strip() if _LITERAL.match(parts[2]) else None
        verdict, note = _equal(left, right, literal, cells)
        arithmetic += note
    else:
        vague = any(not cell.printed.exact for cell in cells)
        verdict, note, face_only = _ordered(left, right, relation, vague)
        arithmetic += note
    if verdict is Verdict.FOLLOWS and cells and all(c.read_from == "text" for c in cells):
        verdict = Verdict.CONSISTENT
        arithmetic += " (printed in the text only, nothing to compare with)"
    refs = tuple(cell.ref for cell in cells)
    return Checked(verdict, arithmetic, refs, left, right, relation, face_only)


def _worked(shown: str, value: Value) -> str:
    """An expression with its result, where there is something to work out."""
    if not re.search(r"[+*/]|\s-\s", shown):
        return shown
    if shown.startswith("(") and shown.endswith(")") and shown.count("(") == 1:
        shown = shown[1:-1]
    return f"[{shown} = {decimal(value.face)}]"


def decimal(value: Fraction, places: int = 4) -> str:
    """A fraction for reading: at most `places` decimals, no trailing zeros."""
    text = print_number(value, places)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _number(text: str, whole: str) -> Fraction:
    try:
        return parse_printed(text).face
    except ValueError:
        raise ExpressionError(f"{whole!r}: {text.strip()!r} is not a number") from None


def _near(left: Value, right: Value, tolerance: Fraction) -> Verdict:
    if abs(left.face - right.face) <= tolerance:
        return Verdict.FOLLOWS
    gap = max(left.low - right.high, right.low - left.high)
    return Verdict.CONTRADICTED if gap > tolerance else Verdict.CONSISTENT


def _equal(
    left: Value, right: Value, literal: str | None, cells: tuple[Cell, ...]
) -> tuple[Verdict, str]:
    if any(not cell.printed.exact for cell in cells):
        overlap = left.low <= right.high and right.low <= left.high
        return (Verdict.CONSISTENT if overlap else Verdict.CONTRADICTED), ""
    if literal is None:
        if left.face == right.face:
            return Verdict.FOLLOWS, ""
        overlap = left.low <= right.high and right.low <= left.high
        note = f" (left is {decimal(left.face)}, right is {decimal(right.face)})"
        return (Verdict.CONSISTENT if overlap else Verdict.CONTRADICTED), note
    stated = parse_printed(literal)
    prints = {
        mode: print_number(left.face, stated.decimals, mode)
        for mode in (Rounding.HALF_UP, Rounding.HALF_EVEN, Rounding.TRUNCATED)
    }
    same = {mode for mode, text in prints.items() if Fraction(text) == stated.face}
    note = ""
    exact_print = print_number(left.low, stated.decimals) if left.point else None
    if exact_print is not None and Fraction(exact_print) != stated.face:
        note = f" (the recovered counts give {decimal(left.low)}, which prints {exact_print})"
    if same - {Rounding.TRUNCATED}:
        return Verdict.FOLLOWS, note
    if same:
        return Verdict.CONSISTENT, f" (computed {decimal(left.face)}, cut off, not rounded){note}"
    if left.low <= stated.high and stated.low <= left.high:
        return (
            Verdict.CONSISTENT,
            f" (computed {decimal(left.face)}; within what the printed digits leave open)",
        )
    return Verdict.CONTRADICTED, f" (computed {decimal(left.face)})"


def _ordered(left: Value, right: Value, relation: str, vague: bool) -> tuple[Verdict, str, bool]:
    """An inequality. What holds of the printed digits is at least 'consistent', also where the
    recovered counts undo it: the digits are the paper's, the counts are the audit's. A bound or a
    range (`vague`) has no digits to go by."""
    if "<" in relation:
        left, right = right, left
    strict = "=" not in relation
    certain = left.low > right.high if strict else left.low >= right.high
    impossible = left.high <= right.low if strict else left.high < right.low
    face = left.face > right.face if strict else left.face >= right.face
    if certain:
        return Verdict.FOLLOWS, "", False
    if impossible and face and not vague:
        equal = left.point and right.point and left.low == right.low
        turned = "make both sides equal" if equal else "do not"
        return Verdict.CONSISTENT, f" (the printed digits do, the recovered counts {turned})", True
    if impossible:
        return Verdict.CONTRADICTED, "", False
    if face and not vague:
        return Verdict.CONSISTENT, " (within what the printed digits leave open)", False
    return Verdict.NOT_DECIDABLE, " (the printed digits do not decide it)", False

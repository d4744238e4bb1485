"""Whether a script may run several times in one process, each time as if the process were new.

A process for every run costs more than most runs. What it would buy is that nothing of a run is
left for the next, and that can be read off many programs: they use a few modules that keep nothing,
change no module, open no file, start no thread, and do not look behind the scenes. For the others
this says no. It is a question of meaning, not of safety: walls, limits and the guard against forged
results are the same for both, and a program that deceives this only spoils its own later runs.
"""

from __future__ import annotations

import ast

MODULES = frozenset(
    ("abc", "array", "bisect", "cmath", "collections", "collections.abc", "copy", "dataclasses",
     "datetime", "enum", "fractions", "functools", "heapq", "itertools", "json", "math", "numbers",
     "operator", "queue", "random", "re", "statistics", "string", "sys", "textwrap", "typing")
)  # fmt: skip
"""Modules of which nothing but caches changes by use. `random` is seeded anew for every run."""
_OF_SYS = frozenset(
    ("stdin", "stdout", "stderr", "exit", "setrecursionlimit", "getrecursionlimit", "maxsize",
     "set_int_max_str_digits", "get_int_max_str_digits", "float_info", "version_info", "getsizeof")
)  # fmt: skip
_NAMES = frozenset(
    ("__builtins__", "__import__", "__loader__", "__spec__", "breakpoint", "compile", "delattr",
     "eval", "exec", "getattr", "globals", "help", "locals", "memoryview", "open", "setattr",
     "vars")
)  # fmt: skip
_SPECIAL = frozenset(("__init__", "__name__", "__len__"))


def repeatable(code: str) -> bool:
    """Whether a run of the script leaves nothing that a later run could notice."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    modules: set[str] = set()
    own: set[str] = set()
    bases: set[int] = set()
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            if any(alias.name not in MODULES for alias in node.names):
                return False
            if any(alias.name == "sys" and alias.asname for alias in node.names):
                return False
            modules |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level or node.module not in MODULES:
                return False
            if node.module == "sys" and any(alias.name not in _OF_SYS for alias in node.names):
                return False  # also `*`
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            own.add(node.id)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            own.add(node.name)
        elif isinstance(node, ast.Attribute):
            bases.add(id(node.value))
    for node in nodes:
        if isinstance(node, ast.Name):
            if node.id in _NAMES or (node.id in modules and id(node) not in bases):
                return False
        elif isinstance(node, ast.Attribute) and not _harmless(node, modules, own):
            return False
    # What is forgotten between two runs must have nothing to say.
    kinds = {type(node) for node in nodes}
    late = ast.Yield in kinds and (ast.With in kinds or any(_cleans_up(node) for node in nodes))
    return not (late or modules & own or "__del__" in own)


def _cleans_up(node: ast.AST) -> bool:
    return isinstance(node, ast.Try) and bool(node.finalbody or node.handlers)


def _harmless(node: ast.Attribute, modules: set[str], own: set[str]) -> bool:
    """Whether an attribute is an ordinary one, and, where it is set, that of an own object."""
    special = node.attr.startswith("__") and node.attr.endswith("__")
    if special and node.attr not in _SPECIAL:
        return False
    of_sys = isinstance(node.value, ast.Name) and node.value.id == "sys" and "sys" in modules
    if of_sys and node.attr not in _OF_SYS:
        return False
    if isinstance(node.ctx, ast.Load):
        return True
    root: ast.expr = node
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    return isinstance(root, ast.Name) and root.id in own

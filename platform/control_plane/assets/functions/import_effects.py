"""Whether importing a file would do anything but define things, and whether its code changes what it imports. Read as a
syntax tree, never imported.

For source that runs inside the trainer: it is a first sieve against accidents (a download at import, a print in every
rank, a patched torch), not a sandbox. What keeps others' code out of the trainer is the pool's `trainer_code`; the
trainer looks once more at what the file has replaced (`trainers.algorithms.monkeypatch_guard`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

# Importing these does nothing that the trainer has not done already.
MODULES = (
    "__future__", "collections", "dataclasses", "functools", "math", "oolong.contracts", "torch", "trainers.algorithms",
    "typing",
)  # fmt: skip
_CHANGING = ("setattr", "delattr", "__setattr__", "__delattr__", "__setitem__")
_RUNS = (
    ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp,
)  # fmt: skip


def import_effects(tree: ast.Module) -> list[tuple[str, str]]:
    """(code, message with its line) of every statement that an import would run for its effect, and of every one that
    would assign into an imported module or class."""
    return [*_of_body(tree.body), *_of_targets(tree)]


def _of_targets(tree: ast.Module) -> Iterator[tuple[str, str]]:
    shared = {"__builtins__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            shared |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and _root(_changed_by(node)) in shared:
            yield (
                "changes_import",
                f"line {node.lineno}: `{ast.unparse(node)[:60]}` would change what the whole trainer uses; a loss may "
                "change only what it has made itself",
            )


def _changed_by(expression: ast.expr) -> ast.expr | None:
    """What an assignment, a deletion or a call of setattr changes."""
    if isinstance(expression, ast.Attribute | ast.Subscript) and not isinstance(expression.ctx, ast.Load):
        return expression
    if isinstance(expression, ast.Call) and ast.unparse(expression.func).rpartition(".")[2] in _CHANGING:
        return expression.args[0] if expression.args else None
    return None


def _root(expression: ast.expr | None) -> str:
    """The name at the beginning of `name.attribute[item]`; "" where there is none."""
    while isinstance(expression, ast.Attribute | ast.Subscript):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def _of_body(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement in body:
        match statement:
            case ast.Import():
                for alias in statement.names:
                    yield from _of_module(alias.name, statement.lineno)
            case ast.ImportFrom():
                yield from _of_module("." * statement.level + (statement.module or ""), statement.lineno)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                arguments = statement.args
                given = [one.annotation for one in ast.walk(arguments) if isinstance(one, ast.arg)]
                yield from _of_values(
                    [
                        *statement.decorator_list, *arguments.defaults, *arguments.kw_defaults, *given,
                        statement.returns,
                    ]
                )  # fmt: skip
            case ast.ClassDef():
                plain = [one for one in statement.decorator_list if not _is_dataclass(one)]
                yield from _of_values([*plain, *statement.bases, *(one.value for one in statement.keywords)])
                yield from _of_body(statement.body)
            case ast.Assign():
                yield from _of_values([statement.value])
            case ast.AnnAssign():
                yield from _of_values([statement.annotation, statement.value])
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case _:
                yield (
                    "import_effect",
                    f"line {statement.lineno}: {type(statement).__name__.lower()} at the top level would run when "
                    "the trainer imports the file; move it into loss",
                )


def _of_module(name: str, line: int) -> Iterator[tuple[str, str]]:
    if not any(name == known or name.startswith(f"{known}.") for known in MODULES):
        yield (
            "import_not_allowed",
            f"line {line}: a loss may import {', '.join(MODULES)}; not {name or 'a relative module'}",
        )


def _of_values(values: list[ast.expr | None]) -> Iterator[tuple[str, str]]:
    for value in values:
        running = (
            None if value is None else next((one for one in ast.walk(value) if isinstance(one, _RUNS)), None)
        )
        if running is not None:
            yield (
                "import_effect",
                f"line {running.lineno}: `{ast.unparse(running)[:60]}` would run when the trainer imports the file; "
                "move it into loss, or write the value out",
            )


def _is_dataclass(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called) in ("dataclass", "dataclasses.dataclass")

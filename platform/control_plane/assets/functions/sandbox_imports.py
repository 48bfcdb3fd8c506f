"""Imports of an uploaded file that its sandbox does not have. Read as a syntax tree, never imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from oolong.contracts.error_words import nearest
from oolong.contracts.user_code import SANDBOX_EXTRAS, SANDBOX_MODULES, SourceKind

CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def missing_imports(kind: SourceKind, tree: ast.Module) -> list[str]:
    """A message with its line for each; none for a loss, which runs in the trainer (see `import_effects`).

    An import that the file itself expects to fail (`try: … except ImportError`) or that only a type checker reads is
    no fault.
    """
    if kind == SourceKind.LOSS:
        return []
    return [f"line {line}: {_why(kind, name)}" for name, line in _imports(tree) if not _is_there(kind, name)]


def _is_there(kind: SourceKind, name: str) -> bool:
    return name.partition(".")[0] in SANDBOX_MODULES or name in SANDBOX_EXTRAS.get(kind, ())


def _why(kind: SourceKind, name: str) -> str:
    extras = SANDBOX_EXTRAS.get(kind, frozenset())
    there = " and ".join(["Python's standard library", *sorted(extras)])
    if name.startswith("."):
        return f"{name} is a relative import, and the file stands alone; put what it needs into it"
    near = nearest(name, SANDBOX_MODULES | extras)
    return (
        f"the sandbox has no module {name!r}{near}; it has {there}. Write what you need of it into the file, or import "
        "it in try with except ImportError if the file can do without"
    )


def _imports(node: ast.AST) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import():
                yield from ((alias.name, child.lineno) for alias in child.names)
            case ast.ImportFrom(level=0, module=str(module)):
                yield from _of_from(module, child)
            case ast.ImportFrom():
                yield "." * child.level + (child.module or ""), child.lineno
            case ast.Try() if any(_catches_import_error(handler) for handler in child.handlers):
                for part in (*child.handlers, *child.orelse, *child.finalbody):
                    yield from _imports(part)
            case ast.If() if ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
                for part in child.orelse:
                    yield from _imports(part)
            case _:
                yield from _imports(child)


def _of_from(module: str, node: ast.ImportFrom) -> Iterator[tuple[str, int]]:
    """`from oolong import workflow` names the module oolong.workflow."""
    if module == "oolong":
        yield from ((f"oolong.{alias.name}", node.lineno) for alias in node.names)
    else:
        yield module, node.lineno


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(one, ast.Name) and one.id in CAUGHT for one in caught)

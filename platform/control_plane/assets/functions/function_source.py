"""Whether an uploaded Python file defines what its kind needs: read as a syntax tree, never imported or run."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from control_plane.assets.functions.import_effects import import_effects
from control_plane.assets.functions.sandbox_imports import missing_imports
from control_plane.core.api.errors import FieldError
from oolong.contracts.user_code import ENTRY_POINTS, MAX_SOURCE_BYTES, EntryPoint, SourceKind

POINTER = "/source"


@dataclass
class FunctionSignature:
    options: list[str] = field(default_factory=list)  # parameters after the documented ones
    any_option: bool = False  # it takes **options
    errors: list[FieldError] = field(default_factory=list)


def read_source(kind: SourceKind, source: str) -> FunctionSignature:
    """All faults of a would-be function, each with its line; none when it may become a version."""
    size = len(source.encode())
    if size > MAX_SOURCE_BYTES:
        return _refused("too_large", f"the file has {size} bytes, at most {MAX_SOURCE_BYTES}")
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return _refused("syntax", f"line {error.lineno or 1}: {error.msg}")
    except (
        ValueError,
        RecursionError,
        MemoryError,
    ) as error:  # NUL bytes; nesting that the parser gives up on
        return _refused("syntax", f"Python cannot parse it: {type(error).__name__}: {error}")
    entry = ENTRY_POINTS[kind]
    defined = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == entry.name
    ]
    if defined:
        facts = _check_signature(entry, defined[-1])
    else:
        message = (
            f"a {kind} defines `{entry.signature}` at the top level of its file; there is no such function"
        )
        facts = _refused("no_entry_point", message)
    try:
        if kind == SourceKind.LOSS:
            facts.errors += [FieldError(POINTER, code, message) for code, message in import_effects(tree)]
        missing = missing_imports(kind, tree)
    except RecursionError:
        return _refused("syntax", "an expression is nested too deeply to be checked")
    facts.errors += [FieldError(POINTER, "not_in_sandbox", message) for message in missing]
    return facts


def _check_signature(entry: EntryPoint, found: ast.FunctionDef | ast.AsyncFunctionDef) -> FunctionSignature:
    arguments = found.args
    named = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    keyword_only = [argument.arg for argument in arguments.kwonlyargs]
    wanted = list(entry.parameters)
    without_default = named[len(wanted) : len(named) - len(arguments.defaults)] + [
        name for name, default in zip(keyword_only, arguments.kw_defaults, strict=True) if default is None
    ]
    facts = FunctionSignature(
        options=named[len(wanted) :] + keyword_only, any_option=arguments.kwarg is not None
    )

    def fault(code: str, message: str) -> None:
        facts.errors.append(FieldError(POINTER, code, f"line {found.lineno}: {message}"))

    if isinstance(found, ast.AsyncFunctionDef) != entry.is_async:
        wanted_form, found_form = ("async def", "def") if entry.is_async else ("def", "async def")
        fault("wrong_form", f"{entry.name} is `{found_form}`; it must be `{wanted_form}`")
    if arguments.posonlyargs:
        fault("positional_only", f"{entry.name} has parameters before `/`; they are given by name")
    if named[: len(wanted)] != wanted:
        fault(
            "wrong_signature",
            f"{entry.name} takes ({', '.join(named)}); it must begin with ({', '.join(wanted)})",
        )
    elif without_default:
        fault(
            "option_without_default",
            f"{entry.name} has {', '.join(without_default)} without a default; what follows "
            f"{wanted[-1]} is an option and needs one",
        )
    return facts


def _refused(code: str, message: str) -> FunctionSignature:
    return FunctionSignature(errors=[FieldError(POINTER, code, message)])

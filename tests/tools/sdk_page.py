"""The page of the Python SDK, from the client and its models."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

import oolong.client as sdk
from oolong.client import Client, models
from oolong.client.settings import ClientSettings

INTRODUCTION = """\
# Python SDK

```python
from oolong.client import Client

with Client() as client:  # OOLONG_URL and OOLONG_TOKEN, or what `oolong login` keeps
    run = client.runs.wait("run_…")
    print(run.status, client.runs.last_value(run.id, "eval/accuracy"))
```

`AsyncClient` has the same methods, awaited; its lists are asynchronous iterators. The package is typed (`py.typed`):
names, arguments and answers are checked by `mypy --strict`. It needs neither torch nor Django, and is installed from
your control plane ([how](../how-to/ci.md#install-the-command)). A whole program:
[`train_and_promote.py`](../examples/train_and_promote.py).

Lists are iterators over every page. Calls that are safe to repeat are repeated when the server is away or busy.
"""


def page() -> str:
    lines = [*INTRODUCTION.splitlines(), "", "## Client", "", inspect.getdoc(Client) or "", ""]
    lines += _methods(Client)
    for name, kind in namespaces():
        lines += ["", f"## client.{name}", "", *_methods(kind)]
    lines += ["", "## Errors", "", "All of them are `OolongError`, from `oolong.client`.", ""]
    lines += ["| error | raised when |", "| --- | --- |"]
    lines += [f"| `{kind.__name__}` | {_first_line(kind)} |" for kind in errors()]
    lines += [
        "",
        "## Models",
        "",
        "From `oolong.client.models`. Fields that a newer server adds are ignored.",
    ]
    for name, kind in sorted(vars(models).items()):
        if inspect.isclass(kind) and issubclass(kind, models.ApiModel):
            lines += ["", f"### {name}", "", *_fields(kind)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def namespaces() -> Iterator[tuple[str, type]]:
    """`runs` → Runs, in the order of the client."""
    client = Client.__new__(Client)
    try:
        Client.__init__(client, "http://127.0.0.1:1", "token")
        for name, value in vars(client).items():
            if not name.startswith("_") and not isinstance(value, ClientSettings):
                yield name, type(value)
    finally:
        client.close()


def errors() -> list[type[Exception]]:
    found = [getattr(sdk, name) for name in sdk.__all__]
    return [kind for kind in found if isinstance(kind, type) and issubclass(kind, sdk.OolongError)]


def _methods(kind: type) -> list[str]:
    lines = ["| method | |", "| --- | --- |"]
    for name, method in vars(kind).items():
        if not name.startswith("_") and inspect.isfunction(method):
            lines.append(f"| `{name}{_signature(method)}` | {_first_line(method)} |")
    return lines


def _signature(method: Any) -> str:
    signature = inspect.signature(method)
    kept = [parameter for name, parameter in signature.parameters.items() if name != "self"]
    return _plain(str(signature.replace(parameters=kept)))


def _fields(model: type) -> list[str]:
    if not issubclass(model, BaseModel) or not model.model_fields:
        return [_first_line(model)]
    hints = typing.get_type_hints(model)
    return [f"- `{name}: {_plain(_shown(hints[name]))}`" for name in model.model_fields]


def _shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _plain(text: str) -> str:
    """Types without the modules that they come from; no quotes of unevaluated annotations, no bars in a table."""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    text = re.sub(r"\b(?:[a-z_][\w]*\.)+(?=[A-Z])", "", text)
    return text.replace("|", "or").replace("NoneType", "None")


def _first_line(value: Any) -> str:
    text = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
    return text.replace("|", "\\|")

"""JSON of long columns of numbers, several times as quick as the framework's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from rest_framework.renderers import JSONRenderer


class QuickJSONRenderer(JSONRenderer):
    """For answers of plain dicts, lists, text and finite numbers."""

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return msgspec.json.encode(data)

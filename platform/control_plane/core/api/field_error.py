"""One fault of one field: plain data, for code that runs without Django too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FieldError:
    pointer: str  # JSON pointer: "/spec/rollout/top_p", "/rows/17/answer"
    code: str
    message: str

    def as_json(self) -> dict[str, str]:
        return {"pointer": self.pointer, "code": self.code, "message": self.message}

"""What goes over the relay's socket: one msgpack array per message, its first element the kind of frame.

A stream: the control plane sends Open, then Data and End for the request's body. The agent answers Head, then
Data and End. Either side grants Credit for what it has passed on, and either may Cancel, which is the stream's
last frame in both directions. Data and End are numbered per stream and direction: a number left out means that
frames were lost between processes of the control plane, and the stream ends as `lost`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

CancelCode = Literal[
    "gone",  # the caller hung up
    "busy",  # too many streams on this socket
    "unavailable",  # the node has no such job (now), or it does not answer
    "too_large",  # more bytes than the endpoint allows
    "timeout",
    "lost",  # a socket or a process between the two ends is gone
    "protocol",  # the other side broke a rule of this page; the message names it
]


class Frame(msgspec.Struct, frozen=True, array_like=True, tag=True):
    stream: str  # 32 hex digits, made by the control plane


class Open(Frame, frozen=True, array_like=True, tag="open"):
    attempt_id: str
    endpoint: str  # a name of endpoints.ENDPOINTS
    method: str
    path: str  # below the endpoint, without a leading slash: "" or "0-ab12/v1/chat/completions"
    headers: list[tuple[str, str]]  # lower-case names, of the endpoint's allow-list only


class Head(Frame, frozen=True, array_like=True, tag="head"):
    status: int
    headers: list[tuple[str, str]]


class Data(Frame, frozen=True, array_like=True, tag="data"):
    number: int  # 0, 1, 2, ... in its direction; End counts too
    content: bytes


class End(Frame, frozen=True, array_like=True, tag="end"):
    """No more bytes in this direction."""

    number: int


class Credit(Frame, frozen=True, array_like=True, tag="credit"):
    """The receiver has passed this many bytes on: the sender may send as many more."""

    grant: int  # bytes


class Cancel(Frame, frozen=True, array_like=True, tag="cancel"):
    code: CancelCode
    message: str = ""


AnyFrame = Open | Head | Data | End | Credit | Cancel

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyFrame] = msgspec.msgpack.Decoder(AnyFrame)


class BadFrame(ValueError):
    """The message is no frame; the socket that sent it speaks another protocol and is closed."""


def encode(frame: AnyFrame) -> bytes:
    return _encoder.encode(frame)


def decode(message: bytes) -> AnyFrame:
    try:
        return _decoder.decode(message)
    except msgspec.DecodeError as error:
        raise BadFrame(f"{len(message)} bytes that are no relay frame: {error}") from error

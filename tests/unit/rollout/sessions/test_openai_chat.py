"""OpenAI's form: what is understood, and what is refused with the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpu_agents.rollout.sessions.openai_chat import (
    InvalidChatRequest,
    for_template,
    parse_reply,
    parse_request,
)

MESSAGES = [{"role": "user", "content": "hi"}]


def parse(**more: Any) -> Any:
    return parse_request(json.dumps({"messages": MESSAGES, **more}).encode(), temperature=1.0)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("temperature", 0.7), ("temperature", "1"), ("top_p", 0.9), ("n", 2), ("seed", 3), ("logprobs", True),
        ("logit_bias", {"5": 1}), ("response_format", {"type": "json_object"}), ("tool_choice", "required"),
        ("frequency_penalty", 0.5), ("stop", ["a"] * 5), ("stop", [""]), ("max_tokens", 0), ("max_tokens", "7"),
        ("tools", [{"type": "retrieval"}]),
    ],
)  # fmt: skip
def test_what_would_change_the_sampled_distribution_is_refused_by_name(param: str, value: Any) -> None:
    with pytest.raises(InvalidChatRequest) as refused:
        parse(**{param: value})
    assert (refused.value.param == param and repr(value) in str(refused.value)) or param == "tools"


def test_values_that_change_nothing_are_accepted() -> None:
    request = parse(temperature=1, top_p=1.0, n=1, logit_bias=None, stream=True, max_completion_tokens=9, stop="x",
                    stream_options={"include_usage": True}, user="me", response_format={"type": "text"})  # fmt: skip
    assert (request.max_tokens, request.stops, request.stream, request.include_usage) == (
        9,
        ["x"],
        True,
        True,
    )


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hi", "messages"),
        ([{"role": "robot", "content": "x"}], "messages.0.role"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages.0.content"),
        ([*MESSAGES, {"role": "assistant", "content": "x"}], "messages.1"),
    ],
)
def test_messages_that_cannot_be_answered_are_refused(messages: Any, param: str) -> None:
    with pytest.raises(InvalidChatRequest) as refused:
        parse(messages=messages)
    assert refused.value.param == param


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"'])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidChatRequest):
        parse_request(body, temperature=1.0)


def test_text_parts_are_joined_and_developers_speak_as_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = parse(messages=[{"role": "developer", "content": parts}, *MESSAGES])
    assert request.messages[0] == {"role": "system", "content": "ab"}


def test_tool_calls_are_read_from_what_the_policy_wrote() -> None:
    text = 'Let me add. <tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2]}}\n</tool_call>'
    reply = parse_reply(text, "stop", has_tools=True, stops=[])
    assert (reply.text, reply.finish_reason) == ("Let me add.", "tool_calls")
    (call,) = reply.message["tool_calls"]
    assert call["function"]["name"] == "add" and json.loads(call["function"]["arguments"]) == {
        "a": 1,
        "b": [2],
    }
    # And go back to the template as values.
    (message,) = for_template([reply.message])
    assert message["tool_calls"][0]["function"]["arguments"] == {"a": 1, "b": [2]}


def test_what_is_no_tool_call_stays_text() -> None:
    for text in ("<tool_call>{nonsense}</tool_call>", '<tool_call>{"x": 1}</tool_call>'):
        reply = parse_reply(text, "stop", has_tools=True, stops=[])
        assert (reply.text, reply.tool_calls, reply.finish_reason) == (text, [], "stop")
    written = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'
    assert parse_reply(written, "stop", has_tools=False, stops=[]).text == written


def test_the_text_ends_before_the_first_stop() -> None:
    assert parse_reply("one two three", "stop", has_tools=False, stops=["three", " two"]).text == "one"

"""Every parser of text that the policy wrote takes a time that grows with the text and no faster."""

from __future__ import annotations

import ast
import functools
import inspect
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import pytest
from tokenizers import Tokenizer, models

from control_plane.runs.models import Attempt, Job
from control_plane.telemetry.logs import log_search
from control_plane.telemetry.models import LogChunk
from gpu_agents import model_text
from gpu_agents.rewards import code_compare, registry
from gpu_agents.rewards.code_rows import read_task
from gpu_agents.rewards.code_tests import extract_code, program_of
from gpu_agents.rewards.math_answer import compare_quickly, rejection_reason
from gpu_agents.rewards.remote import judge_text
from gpu_agents.rewards.reward import Completion, ScoringError
from gpu_agents.rewards.user_function import read_result
from gpu_agents.rollout.chat_template import ChatTemplate
from gpu_agents.rollout.sessions.conversation_tree import arguments_of
from gpu_agents.rollout.sessions.openai_chat import InvalidChatRequest, parse_reply, parse_request
from gpu_agents.rollout.sessions.session import _IncrementalText
from gpu_agents.rollout.workflows.tool_calls import ToolFormat, tool_calls
from oolong import untrusted
from oolong.contracts.run_spec.remote_rewards import JudgeOptions
from oolong.redaction import Redactor

SIZE = 300_000
CPU_SECONDS = 0.03
Parser = Callable[[str], object]

DELIMITERS = (
    "```", "```\n", "```python\n", "\n```\n", "```python\n```\n", "`", "<tool_call>", "</tool_call>",
    "<tool_call>{", "<tool_call>{}</tool_call>", "<tool_call>{</tool_call>", "<tool_call>  </tool_call>",
    "}</tool_call>",
    '<tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>', "<think>", "</think>", "<", "{", "}", "{}",
    '{"a":', "[", "]", "[[],", "(", ")", '"', "'", '"""', "\\", '\\"', "\\\\", "\\boxed{", "\\boxed{}", "\\fbox{",
    "\\boxed{1}", "\\boxed{\\fbox{}", " ", "\n", "\t", "\r\n", "\u2028", " \n", "\0", "\ufffd", "$", "^", "^{", "/",
    "9", "9.", "a", "a ", "<|end|>", "```python\n<tool_call>{\"", "\\boxed{[(",
)  # fmt: skip
FILLERS = ("a", " ", "{", '"', "\\", "\n", "```\n", "</tool_call>")
WRAPPED = (
    "```{}",
    "```python\n{}\n```",
    "```python\n{}",
    "<tool_call>{}</tool_call>",
    '<tool_call>{{"name": "{}"}}</tool_call>',
    "<tool_call>{{{}",
    "\\boxed{{{}}}",
    "\\boxed{{}}{}x",
    "{}\\boxed{{1}}",
)
REWARD_OPTIONS: dict[str, dict[str, Any]] = {
    "format": {"tags": ["think", "answer"]},
    "length": {"full_until": 10, "zero_from": 20, "unit": "words"},
}


def rewards() -> Iterator[tuple[str, Parser]]:
    """Every reward of text alone in the table: a new one is tested too."""
    for name, build in registry.REWARDS.items():
        reward = build(REWARD_OPTIONS.get(name, {}))
        yield f"reward {name}", lambda text, reward=reward: reward(completion(text))  # type: ignore[misc]


def completion(text: str) -> Completion:
    return Completion(prompt="", text=text, answer="1", finish_reason="stop")


def finders() -> Iterator[tuple[str, Parser]]:
    """Every public function of `model_text`: a new one is tested too."""
    for name, function in inspect.getmembers(model_text, inspect.isfunction):
        if inspect.iscoroutinefunction(function):
            continue
        if not name.startswith("_") and function.__module__ == model_text.__name__:
            more = ("tool_call",) if "tag" in inspect.signature(function).parameters else ()
            yield f"model_text.{name}", lambda text, f=function, more=more: drained(f(text, *more))  # type: ignore[misc]


SPECIAL_TOKENS = ("<|im_start|>", "<|im_end|>", "<|end|>", "{", '"')


@functools.cache
def chat_template() -> ChatTemplate:
    folder = Path(tempfile.mkdtemp(prefix="oolong-template-"))
    try:
        tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
        tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "chat_template.jinja").write_text(
            "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"
        )
        return ChatTemplate(folder)
    finally:
        shutil.rmtree(folder)


def render_prompt(text: str) -> str:
    """What users, tools and environments wrote becomes part of a prompt."""
    return chat_template().render([{"role": "user", "content": text}], plain=True)


def search_log(text: str, wanted: log_search.Search) -> None:
    """One request over a completion that a job printed, stored in chunks that end anywhere."""
    job = Job(pk="job", name="trainer", attempt=Attempt(number=1))
    data = text.encode()
    pieces = [
        LogChunk(pk=at + 1, job=job, incarnation=0, offset=at, data=data[at : at + 4096])
        for at in range(0, len(data), 4096)
    ]
    # A tenth of the product's limits: texts of many short lines cost a fixed time per line.
    with patch.multiple(log_search, MAX_SCANNED_LINES=5_000, BATCH=200_000):
        log_search.search_lines(log_search.lines_of(pieces, wanted), wanted)


def drained(found: object) -> None:
    if isinstance(found, Iterator):
        deque(found, maxlen=0)


def tool_formats() -> Iterator[tuple[str, Parser]]:
    for form in get_args(ToolFormat):
        yield f"tool calls, {form}", lambda text, form=form: tool_calls(text, form, limit=9)  # type: ignore[misc]


def score_program(text: str) -> object:
    return program_of(read_task('{"tests": [{"input": "", "output": ""}]}'), extract_code(text), "nonce")


JUDGE = JudgeOptions(url="https://a.test", model="m", template="{response}")
PARSERS: tuple[tuple[str, Parser], ...] = (
    *finders(),
    *rewards(),
    *tool_formats(),
    ("code: the program", score_program),
    ("code: output as lines", lambda text: code_compare.same_output(text, "1.5\n2\n")),
    ("code: output as long as expected", lambda text: code_compare.same_output(text, "1.5" + text)),
    ("code: a value", lambda text: code_compare.same_value(text.encode(), [1])),
    ("code: tests of a row", lambda text: read_task(text)),
    ("math: what is unfit", rejection_reason),
    ("math: what is quick", lambda text: rejection_reason(text) or compare_quickly("1", text)),
    ("a result of a user's reward", lambda text: read_result(text.encode())),
    ("chat: a reply", lambda text: parse_reply(text, "stop", has_tools=True, stops=["never", "<tool_call>never"])),
    ("chat: growing text", lambda text: _IncrementalText(["never"]).grow(text)),
    ("chat: a request", lambda text: parse_request(text.encode(), temperature=1.0)),
    ("chat: arguments", lambda text: arguments_of({"function": {"arguments": text}})),
    ("judge: quotes", lambda text: judge_text.quoted(text)),
    ("judge: a reply", lambda text: judge_text.parse_score(text, JUDGE)),
    ("untrusted JSON", lambda text: untrusted.parse_json(text)),
    ("untrusted text", lambda text: untrusted.clean_text(text)),
    ("untrusted label", lambda text: untrusted.label_error(text)),
    ("chat template", lambda text: render_prompt(text)),
    ("log search", lambda text: search_log(text, log_search.Search(level="ERROR", after=(1, 5)))),
    ("redaction", lambda text: Redactor({"A": "a-secret-value"}).text(text)),
)  # fmt: skip
EXPECTED_ERRORS = (ValueError, ScoringError, InvalidChatRequest)  # RecursionError is none of them


def hostile_texts() -> Iterator[str]:
    """Each delimiter again and again, and some inside of what would make a parser look for an end."""
    for delimiter in DELIMITERS:
        yield delimiter * (SIZE // len(delimiter))
    for wrapped in WRAPPED:
        for delimiter in FILLERS:
            yield wrapped.format(delimiter * (SIZE // len(delimiter)))


def linear_pass(text: str) -> int:
    """What one plain look at each character costs here and now: a slow machine gets more time by it."""
    depth = 0
    for character in text:
        depth += (character == "{") - (character == "}")
    return depth


@pytest.mark.parametrize(("name", "parse"), PARSERS, ids=[name for name, _ in PARSERS])
def test_a_long_run_of_each_delimiter_is_parsed_in_linear_time(name: str, parse: Parser) -> None:
    slow = [text[:40] for text in hostile_texts() if not is_quick(parse, text)]
    assert not slow, f"{name} takes long for these"


def is_quick(parse: Parser, text: str) -> bool:
    """Within 30 ms of CPU time, or ten plain passes where the machine is slow; what hinders one try is chance."""
    for _ in range(3):
        spent = cpu_seconds_of(parse, text)
        if spent < CPU_SECONDS or spent < 10 * cpu_seconds_of(linear_pass, text):
            return True
    return False


def cpu_seconds_of(parse: Parser, text: str) -> float:
    began = time.thread_time()
    try:
        parse(text)
    except EXPECTED_ERRORS:
        pass
    return time.thread_time() - began


# --- no parser beside the table ---------------------------------------------------------------------------------

# The modules of rewards, workflows, sessions and the playground that search text or read JSON, by what covers them.
COVERED = {
    "gpu_agents/model_text.py": "finders",
    "gpu_agents/rewards/code_compare.py": "code: a value",
    "gpu_agents/rewards/code_rows.py": "code: tests of a row",
    "gpu_agents/rewards/code_tests.py": "code: the program",
    "gpu_agents/rewards/exact_match.py": "rewards; a pattern of the spec runs in a child that is killed",
    "gpu_agents/rewards/execute.py": "untrusted JSON",
    "gpu_agents/rewards/format_check.py": "rewards; a pattern of the spec runs in a child that is killed",
    "gpu_agents/rewards/math_answer.py": "math; text for math-verify is bounded by rejection_reason and by time",
    "gpu_agents/rewards/remote/endpoint.py": "writes JSON only",
    "gpu_agents/rewards/remote/http_protocol.py": "untrusted JSON",
    "gpu_agents/rewards/remote/judge.py": "writes JSON only",
    "gpu_agents/rewards/remote/judge_text.py": "judge; a pattern of the spec runs in a child that is killed",
    "gpu_agents/rewards/service.py": "parses nothing itself: runs a reward beside the loop",
    "gpu_agents/rewards/user_function.py": "a result of a user's reward",
    "gpu_agents/rollout/chat_template.py": "chat template",
    "gpu_agents/rollout/sessions/conversation_tree.py": "chat: arguments",
    "gpu_agents/rollout/sessions/openai_chat.py": "chat",
    "gpu_agents/rollout/sessions/session.py": "chat: a reply, chat: growing text",
    "gpu_agents/rollout/sessions/server.py": "untrusted JSON",
    "gpu_agents/rollout/workflows/guest.py": "runs in the sandbox",
    "gpu_agents/rollout/workflows/python_tool.py": "tool calls",
    "gpu_agents/rollout/workflows/tool_calls.py": "tool calls",
    "gpu_agents/playground/server.py": "untrusted JSON",
    "platform/control_plane/telemetry/logs/log_search.py": "log search",
}  # fmt: skip
BESIDE = (
    "gpu_agents/model_text.py",
    "gpu_agents/rollout/chat_template.py",
    "platform/control_plane/telemetry/logs/log_search.py",
)
READERS = {"re", "json", "parse_json", "model_text"}


def test_every_module_that_reads_model_text_is_in_the_table(checkout: Path) -> None:
    folders = ("rewards", "rewards/remote", "rollout/workflows", "rollout/sessions", "playground")
    files = [file for folder in folders for file in (checkout / "gpu_agents" / folder).glob("*.py")]
    reading = {
        str(file.relative_to(checkout))
        for file in (*files, *(checkout / file for file in BESIDE))
        if imported_names(file) & READERS
    }
    assert reading == set(COVERED)


def imported_names(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {(node.module or "").rpartition(".")[2], *(alias.name for alias in node.names)}
    return names


# --- what the parsers find --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("```\na\n```", [("", "a\n")]),
        ("x\n```python title\na\nb\n``` y\n```js\nc\n```\n", [("python", "a\nb\n"), ("js", "c\n")]),
        ("```\n```\n```\n", [("", "")]),
        (" ```\na\n ```", []),
        ("```python", []),
        ("```py", []),
        ("a ``` b\n", []),
        ("```  py3\n```", [("py3", "")]),
        ("\n\n```\n\n```", [("", "\n")]),
        ("```\na\n```b```\nc\n```\n", [("", "a\n")]),
    ],
)
def test_fenced_blocks_are_found_between_lines_that_begin_with_a_fence(
    text: str, blocks: list[tuple[str, str]]
) -> None:
    assert [(block.language, block.body) for block in model_text.fenced_blocks(text)] == blocks


@pytest.mark.parametrize(
    ("text", "bodies"),
    [
        ("<t>{}</t>", ["{}"]),
        ("<t> {a}\n</t>x<t>{b}</t>", ["{a}", "{b}"]),
        ('<t>{"x": "</t>"}</t>', ['{"x": "</t>"}']),
        ("<t>a</t><t>{b}</t>", ["{b}"]),
        ("<t>{a</t>", []),
        ("<t>{</t>", []),
        ("<t>{a}", []),
        ("<t>{a} b</t> c} </t>", ["{a} b</t> c}"]),
    ],
)
def test_objects_are_found_in_their_tags(text: str, bodies: list[str]) -> None:
    found = list(model_text.tagged_objects(text, "t"))
    assert [one.body for one in found] == bodies
    assert all(
        text[one.start : one.end].startswith("<t>") and text[: one.end].endswith("</t>") for one in found
    )


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("\\boxed{1}", "1"),
        ("\\boxed{a} \n", "a"),
        ("\\boxed{1} so", None),
        ("\\boxed{{1}}", None),
        ("\\boxed{1}}", None),
        ("1}", None),
        ("\\boxed{\\boxed{2}", "2"),
    ],
)
def test_only_a_box_at_the_end_counts_there(text: str, box: str | None) -> None:
    assert model_text.boxed_at_end(text) == box


@pytest.mark.parametrize(
    "find", [model_text.fenced_blocks, model_text.fenced_programs], ids=lambda find: find.__name__
)
def test_a_text_beyond_the_cap_holds_no_blocks(find: Callable[[str], Iterator[object]]) -> None:
    block = "```python\n1\n```\n"
    assert list(find(block)) and not list(find(block + " " * model_text.MAX_CHARACTERS))


# --- JSON and strings of others ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '"\\ud800"',
        '{"\\udfff": 1}',
        "[" * 65 + "]" * 65,
        '{"a":' * 65 + "1" + "}" * 65,
        "[" * 100_000,
        "NaN",
        "[Infinity]",
        "1e999",
        "",
        "9" * 5000,
    ],
    ids=lambda text: f"{text[:12]}…{len(text)}",
)
def test_json_that_a_reader_or_store_would_fail_on_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        untrusted.parse_json(text)


def test_json_of_usual_depth_is_read() -> None:
    text = "[" * 64 + "]" * 64
    assert untrusted.parse_json(text) == untrusted.parse_json(text.encode())
    assert untrusted.parse_json('{"a": [1, 2.5, null, "\\u00e9"]}') == {"a": [1, 2.5, None, "é"]}


def test_cleaned_text_can_be_stored_and_sent() -> None:
    cleaned = untrusted.clean_text("a\0b\ud800c\U0001f600\udfff" + "x" * 10_000_000, max_characters=100)
    assert cleaned.startswith("a\ufffdb\ufffdc\U0001f600\ufffdx") and len(cleaned) <= 100
    assert cleaned.encode().decode() == cleaned


@pytest.mark.parametrize("label", ["", "\ud800", "a\0b", "a\nb", "x" * 61, 3, None, "a\u2028"])
def test_a_label_is_short_printable_text(label: object) -> None:
    assert untrusted.label_error(label)


def test_usual_labels_are_fine() -> None:
    assert not any(map(untrusted.label_error, ["format", "code/passed", "Ähnlichkeit", "x" * 60]))

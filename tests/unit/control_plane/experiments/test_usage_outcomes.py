from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from control_plane.experiments.usage_outcomes import RunTokens, apportion, slot_outcomes
from control_plane.experiments.usage_seconds import MEASURED
from control_plane.runs.token_ledger import read_token_ledger

COUNTS = st.integers(0, 10**15)
SECONDS = st.floats(0, 1e9)
REASONS = st.dictionaries(
    st.sampled_from(["error", "stale", "filtered", "run_end", "not_migratable"]), COUNTS
)


@st.composite
def ledgers(draw: st.DrawFn) -> RunTokens:
    trained, lost, in_flight, unknown = (draw(COUNTS) for _ in range(4))
    dropped = draw(REASONS)
    wasted = sum(dropped.values()) + lost
    return RunTokens(
        generated=trained + wasted + in_flight + unknown, trained=trained, dropped=dropped, lost=lost,
        in_flight=in_flight, wasted=wasted,
    )  # fmt: skip


@given(
    slots=st.integers(0, 10**16), part=st.floats(0, 1), kind=st.sampled_from(["rl", "sft", "eval", ""]),
    kept=st.fixed_dictionaries(dict.fromkeys(MEASURED, SECONDS)), tokens=st.none() | ledgers(),
)  # fmt: skip
def test_outcomes_add_up_to_the_slots(
    slots: int, part: float, kind: str, kept: dict[str, float], tokens: RunTokens | None
) -> None:
    lost = min(slots, int(slots * part))
    found = slot_outcomes(slots=slots, lost=lost, kept=kept, kind=kind, tokens=tokens)
    assert sum(found.outcomes.values()) == slots and found.outcomes["lost"] == lost
    assert sum(found.dropped.values()) == found.outcomes["dropped"]
    assert min(found.outcomes.values()) >= 0


@given(total=st.integers(0, 10**16), parts=st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1e17)))
def test_apportioned_parts_add_up(total: int, parts: dict[str, float]) -> None:
    whole = apportion(total, parts, rest="f")
    assert sum(whole.values()) == total and min(whole.values()) >= 0


@given(tokens=ledgers())
def test_tokens_of_a_ledger_add_up(tokens: RunTokens) -> None:
    parts = (tokens.trained, *tokens.dropped.values(), tokens.lost, tokens.in_flight, tokens.unknown)
    assert sum(parts) == tokens.generated


def test_engines_without_a_ledger_are_unknown_and_those_of_evaluations_are_not() -> None:
    kept = dict.fromkeys(MEASURED, 0.0) | {"generate": 10.0}
    of = {
        kind: slot_outcomes(slots=10_000_000, lost=0, kept=kept, kind=kind, tokens=None)
        for kind in ("rl", "eval")
    }
    assert of["rl"].outcomes["unknown"] == of["eval"].outcomes["evaluated"] == 10_000_000


def test_a_ledger_of_another_shape_counts_nothing() -> None:
    assert read_token_ledger({"generated": "many"}) is None
    found = read_token_ledger({"generated": 7, "trained": None, "dropped": {"stale": -1}, "in_hand": "x"})
    assert found is not None and (found.trained, found.dropped, found.in_flight) == (0, {}, 0)

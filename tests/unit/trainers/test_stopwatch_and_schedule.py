from __future__ import annotations

import pytest

from trainers.models.optimizer import learning_rate_at
from trainers.phase_timer import PhaseTimer


def test_phases_add_up_to_the_step() -> None:
    now = [10.0]
    timer = PhaseTimer(lambda: now[0])
    for phase, spent in (("wait_batch", 1.0), ("train", 2.5), ("wait_batch", 0.5)):
        timer.start(phase)
        now[0] += spent
    assert timer.flush("prepare") == {"prepare": 0.0, "wait_batch": 1.5, "train": 2.5}
    now[0] += 3.0
    assert timer.flush("prepare") == {"prepare": 3.0}


def test_the_schedule_warms_up_then_falls_in_a_line() -> None:
    rates = [
        learning_rate_at(step, peak=1.0, warmup_steps=4, total_steps=14, final_fraction=0.1)
        for step in range(15)
    ]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == 1.0 and rates[9] == pytest.approx(0.55) and rates[14] == pytest.approx(0.1)


def test_without_an_end_the_schedule_stays_flat() -> None:
    assert learning_rate_at(10**6, peak=2e-4, warmup_steps=0) == 2e-4

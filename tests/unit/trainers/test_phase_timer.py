from __future__ import annotations

from trainers.phase_timer import PhaseTimer


def test_phases_add_up_to_the_step() -> None:
    now = [10.0]
    timer = PhaseTimer(lambda: now[0])
    for phase, spent in (("wait_batch", 1.0), ("train", 2.5), ("wait_batch", 0.5)):
        timer.start(phase)
        now[0] += spent
    assert timer.flush("prepare") == {"prepare": 0.0, "wait_batch": 1.5, "train": 2.5}
    assert [phase for phase, _, _ in timer.flushed_laps] == ["prepare", "wait_batch", "train", "wait_batch"]
    start, end = timer.flushed_laps[2][1:]
    assert end - start == 2.5
    now[0] += 3.0
    assert timer.flush("prepare") == {"prepare": 3.0}

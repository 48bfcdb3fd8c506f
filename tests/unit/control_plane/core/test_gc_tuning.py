from __future__ import annotations

import gc

from control_plane.core.infra import gc_tuning


def test_what_was_there_at_the_start_is_not_collected_again() -> None:
    before = gc.get_threshold()
    try:
        gc_tuning.freeze()
        assert gc.get_freeze_count() > 10_000
        assert len(gc.get_objects()) < 10_000
        assert gc.get_threshold() == gc_tuning.THRESHOLDS
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)

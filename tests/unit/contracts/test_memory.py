"""Memory of the first trainer rank against a table that was computed by hand, in GB."""

from __future__ import annotations

import pytest

from oolong.contracts.run_spec import RunSpec
from oolong.contracts.run_spec.memory import reduces_every_microbatch, trainer_memory

RANKS = (1, 2, 4, 8)
# 16 bytes a parameter over the ranks: float32 weights and gradients, two moments. Plus 4 bytes a parameter on each rank
# where gradients stay whole between microbatches, which is where these take at most an eighth of the GPU.
STATE: dict[tuple[float, int], tuple[float, float, float, float]] = {
    (0.6, 24): (12.0, 7.2, 4.8, 3.6), (0.6, 80): (12.0, 7.2, 4.8, 3.6), (0.6, 141): (12.0, 7.2, 4.8, 3.6),
    (1.5, 24): (24.0, 12.0, 6.0, 3.0), (1.5, 80): (30.0, 18.0, 12.0, 9.0), (1.5, 141): (30.0, 18.0, 12.0, 9.0),
    (7.6, 24): (122, 61, 30.4, 15.2), (7.6, 80): (122, 61, 30.4, 15.2), (7.6, 141): (122, 61, 30.4, 15.2),
    (14.8, 24): (237, 118, 59, 29.6), (14.8, 80): (237, 118, 59, 29.6), (14.8, 141): (237, 118, 59, 29.6),
    (32.8, 24): (525, 262, 131, 66), (32.8, 80): (525, 262, 131, 66), (32.8, 141): (525, 262, 131, 66),
}  # fmt: skip


@pytest.mark.parametrize(("billions", "gigabytes"), sorted(STATE))
def test_state_and_probes_are_within_10_percent_of_the_table(billions: float, gigabytes: int) -> None:
    parameters = int(billions * 1e9)
    for ranks, expected in zip(RANKS, STATE[billions, gigabytes], strict=True):
        spec = RunSpec.model_validate(
            {
                "name": "m", "model": {"base_model": "bm_1"}, "dataset": {"version": "d@1"},
                "trainer": {"num_ranks": ranks, "dtype": "bfloat16"},
            }
        )  # fmt: skip
        memory = trainer_memory(spec, parameters, device_bytes=gigabytes * 10**9)
        assert memory.state == pytest.approx(expected * 1e9, rel=0.1)
        assert memory.probes == pytest.approx(2 * billions * 1e9, rel=0.1)


def test_gradients_stay_whole_on_a_cpu_and_where_they_are_small() -> None:
    assert not reduces_every_microbatch(32_000_000_000, None)
    assert not reduces_every_microbatch(2_000_000_000, 80 * 10**9)
    assert reduces_every_microbatch(3_000_000_000, 80 * 10**9)

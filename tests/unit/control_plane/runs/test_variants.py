"""Other ways to place a run."""

from __future__ import annotations

from typing import Any

from control_plane.runs.variants import Variant, variants
from oolong.contracts.run_spec import RunSpec
from tests.support.tiny_specs import tiny_run_spec

BASE = {"kind": "rl", "name": "r", "model": {"base_model": "m"}, "dataset": {"version": "d@1"}}


def spec(**changes: Any) -> RunSpec:
    return tiny_run_spec({**BASE, **changes})


def words(found: list[Variant]) -> list[str]:
    return [one.words for one in found]


def test_engines_go_down_to_one_and_many_go_down_in_quarters() -> None:
    assert words(variants(spec(rollout={"engines": 4}), pools=["default"], devices=["cpu"])) == [
        "with 3 engines instead of 4", "with 2 engines instead of 4", "with 1 engine instead of 4",
    ]  # fmt: skip
    many = variants(spec(rollout={"engines": 16}), pools=[], devices=[])
    assert [one.changes["rollout"]["engines"] for one in many] == [12, 8, 4, 1]


def test_a_run_of_one_engine_in_the_only_pool_has_no_variant() -> None:
    assert variants(spec(), pools=["default"], devices=["cpu"]) == []


def test_other_pools_devices_memory_and_ranks_are_variants() -> None:
    found = variants(
        spec(
            placement={"device": "cuda", "min_gpu_memory_gib": 40}, trainer={"num_ranks": 2, "groups_per_step": 32}
        ),
        pools=["default", "lab"], devices=["cpu", "cuda"],
    )  # fmt: skip
    assert words(found) == [
        "with 1 trainer rank instead of 2", "without min_gpu_memory_gib 40", "on cpu instead of cuda",
        "in pool lab instead of default",
    ]  # fmt: skip
    assert found[2].changes == {"placement": {"device": "cpu", "min_gpu_memory_gib": None}}


def test_a_gpu_model_is_given_up_alone_or_with_the_device() -> None:
    found = variants(
        spec(placement={"device": "cuda", "gpu_model": "H100"}), pools=[], devices=["cpu", "cuda"]
    )
    assert words(found) == ["without gpu_model H100", "on cpu instead of cuda"]
    assert found[1].changes["placement"]["gpu_model"] is None


def test_a_warm_start_without_engines_has_no_engines_to_give_up() -> None:
    assert variants(spec(kind="sft", rollout={"engines": 4}), pools=[], devices=[]) == []

"""SEMANTICS section 4: which version's files are kept."""

from __future__ import annotations

from gpu_agents.rollout.controller.versions import LOAD_CLAIM_TTL_SECONDS, Versions
from tests.unit.rollout.simulation import weights


def numbers(versions: Versions) -> list[int]:
    return [w.version for w in versions.collect_deletable()]


def test_only_the_newest_version_stays_when_nobody_loads() -> None:
    versions = Versions()
    for number in range(3):
        versions.announce(weights(number))
    assert numbers(versions) == [0, 1]
    assert numbers(versions) == []


def test_a_load_claim_keeps_its_version_until_it_ends() -> None:
    versions = Versions()
    versions.announce(weights(0))
    assert versions.claim_load("a", now=0.0) == weights(0)
    versions.announce(weights(1))
    assert numbers(versions) == []
    versions.end_load("a")
    assert numbers(versions) == [0]


def test_skipped_versions_are_never_handed_out() -> None:
    versions = Versions()
    for number in range(5):
        versions.announce(weights(number))
    assert versions.claim_load("a", now=0.0) == weights(4)


def test_a_stopped_worker_holds_disk_no_longer_than_its_claims_life() -> None:
    """Under SIGSTOP a worker neither acknowledges nor speaks: at most 2 + loading versions lie on the disk."""
    versions = Versions()
    on_disk: set[int] = set()
    for second in range(200):
        on_disk.add(second)
        versions.announce(weights(second))
        if second == 3:
            versions.claim_load("stopped", now=3.0)
        versions.claim_load("alive", now=float(second))
        assert len(on_disk) <= 2 + versions.loading
        versions.end_load("alive")
        versions.expire_loads(now=float(second))
        on_disk -= set(numbers(versions))
        assert (3 in on_disk) == (3 <= second <= 3 + LOAD_CLAIM_TTL_SECONDS)
    assert on_disk == {199}


def test_a_pinned_version_stays_for_the_evaluation() -> None:
    versions = Versions()
    versions.announce(weights(0))
    versions.pin(0)
    versions.announce(weights(1))
    assert numbers(versions) == []
    versions.unpin(0)
    assert numbers(versions) == [0]

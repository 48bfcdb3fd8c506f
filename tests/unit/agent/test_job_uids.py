"""The uids of attempts: never one that somebody has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpu_agents.agent.__main__ import _parser
from gpu_agents.agent.isolation import uids
from gpu_agents.agent.isolation.uids import FIRST, LAST, NoUid, UidClaims


@pytest.fixture
def attempts(tmp_path: Path) -> list[Path]:
    folders = [tmp_path / f"att_{number}" for number in range(3)]
    for folder in folders:
        folder.mkdir()
    return folders


def test_each_attempt_has_a_uid_of_its_own_until_its_files_are_gone(
    tmp_path: Path, attempts: list[Path]
) -> None:
    claims = UidClaims(700_000, 700_001, folder=tmp_path / "claims")
    other_agent = UidClaims(700_000, 700_001, folder=tmp_path / "claims")
    assert claims.claim(attempts[0]) == 700_000
    assert other_agent.claim(attempts[1]) == 700_001
    with pytest.raises(NoUid, match="--job-uids FIRST-LAST"):
        claims.claim(attempts[2])
    claims.release(700_000, attempts[1])  # not its own: nothing happens
    with pytest.raises(NoUid):
        claims.claim(attempts[2])
    claims.release(700_000, attempts[0])
    assert claims.claim(attempts[2]) == 700_000
    attempts[1].rmdir()  # its agent was never started again
    assert claims.claim(attempts[0]) == 700_001


def test_uids_of_accounts_processes_and_containers_are_left_out(
    tmp_path: Path, attempts: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uids, "_accounts", lambda: {700_000})
    monkeypatch.setattr(uids, "_process_uids", lambda: {700_001})
    monkeypatch.setattr(uids, "_subordinates", lambda: [range(700_002, 700_010)])
    assert UidClaims(700_000, 700_020, folder=tmp_path / "claims").claim(attempts[0]) == 700_010


def test_the_uid_of_this_process_is_seen() -> None:
    assert os.geteuid() in uids._process_uids()
    assert 0 in uids._accounts()


def test_an_attempt_keeps_its_uid_though_its_claim_was_deleted(tmp_path: Path, attempts: list[Path]) -> None:
    claims = UidClaims(700_000, 700_001, folder=tmp_path / "claims")
    claims.keep(700_000, attempts[0])
    claims.keep(700_000, attempts[0])
    assert claims.claim(attempts[1]) == 700_001


def test_claims_outlive_a_reboot_so_that_the_agent_that_starts_first_takes_no_uid_of_another() -> None:
    volatile = ("/run", "/tmp", "/dev", "/var/run", "/var/tmp")
    assert not any(uids.CLAIMS.resolve().is_relative_to(Path(folder).resolve()) for folder in volatile)


def test_a_uid_that_another_attempt_has_claimed_is_refused_and_stays_its_own(
    tmp_path: Path, attempts: list[Path]
) -> None:
    first = UidClaims(700_000, 700_001, folder=tmp_path / "claims")
    assert first.claim(attempts[0]) == 700_000
    with pytest.raises(NoUid, match=f"{attempts[1]} belongs to uid 700000, which {attempts[0]} has claimed"):
        UidClaims(700_000, 700_001, folder=tmp_path / "claims").keep(700_000, attempts[1])
    first.release(700_000, attempts[0])
    assert first.claim(attempts[1]) == 700_000


@pytest.mark.parametrize(
    ("words", "wanted"), [([], (FIRST, LAST)), (["--job-uids", "500000-500099"], (500_000, 500_099))]
)
def test_the_range_is_a_setting(words: list[str], wanted: tuple[int, int]) -> None:
    needed = ["run", "--server", "https://x", "--data-dir", "/d", "--node-python", "/p"]
    assert _parser().parse_args([*needed, *words]).job_uids == wanted


@pytest.mark.parametrize("text", ["5", "9-5", "0-5", "a-b", "1-99999999999"])
def test_what_is_no_range_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parser().parse_args(
            ["run", "--server", "x", "--data-dir", "d", "--node-python", "p", "--job-uids", text]
        )
    assert "is not FIRST-LAST" in capsys.readouterr().err

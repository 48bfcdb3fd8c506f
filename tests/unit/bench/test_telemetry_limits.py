"""The measure of many sockets meets no limit of the server, whatever the environment sets."""

from __future__ import annotations

import pytest

from control_plane import config
from tests.bench.test_telemetry_speed import SLOW_SOCKETS, SOCKETS, WITHOUT_LIMITS


def test_the_sockets_of_the_measure_are_more_than_the_limits_allow_and_the_measure_lifts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = config.load_config()
    assert min(usual.streams_user, usual.streams_address) < SOCKETS + SLOW_SOCKETS
    for name, value in WITHOUT_LIMITS.items():
        monkeypatch.setenv(name, value)
    lifted = config.load_config()
    assert (lifted.streams_user, lifted.streams_address, lifted.rate_quotas.address) == (0, 0, 0)

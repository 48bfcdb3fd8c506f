"""How many live streams an address and a user may have open."""

from __future__ import annotations

import pytest

from control_plane.core.stream.open_streams import StreamLimits, TooManyStreams


def limits(per_user: int = 0, per_address: int = 0, unknown: int = 0) -> StreamLimits:
    return StreamLimits(per_user=per_user, per_address=per_address, unknown_per_address=unknown)


def test_few_streams_of_an_address_may_be_unauthenticated() -> None:
    ours = limits(unknown=2)
    first, _ = ours.open("198.51.100.1"), ours.open("198.51.100.1")
    with pytest.raises(
        TooManyStreams, match=r"198\.51\.100\.1 has 2 streams open that have not authenticated"
    ):
        ours.open("198.51.100.1")
    ours.open("198.51.100.2")
    first.identify("usr_1")
    ours.open("198.51.100.1")


def test_a_user_has_so_many_from_everywhere() -> None:
    ours = limits(per_user=2)
    held = [ours.open(f"198.51.100.{n}") for n in range(3)]
    held[0].identify("usr_1")
    held[1].identify("usr_1")
    with pytest.raises(TooManyStreams, match="2 streams open, which is the limit"):
        held[2].identify("usr_1")
    held[2].identify("usr_2")
    held[0].identify("usr_1")  # says so again
    held[0].identify("usr_3")  # another one now
    ours.open("198.51.100.9").identify("usr_1")


def test_an_address_has_so_many_and_an_ipv6_network_counts_as_one() -> None:
    ours = limits(per_address=2)
    first = ours.open("2001:db8:1:2::1")
    ours.open("2001:db8:1:2:ffff::1").identify("usr_1")
    with pytest.raises(TooManyStreams, match="2001:db8:1:2::/64"):
        ours.open("2001:db8:1:2::3")
    first.close()
    first.close()
    ours.open("2001:db8:1:2::3")


def test_nodes_behind_one_address_do_not_count() -> None:
    ours = limits(per_address=1, unknown=1)
    for _ in range(5):
        ours.open("198.51.100.1").identify_node()


def test_nothing_is_kept_of_streams_that_ended() -> None:
    ours = limits(per_user=3, per_address=3, unknown=3)
    for n in range(20):
        stream = ours.open(f"198.51.100.{n}")
        if n % 2:
            stream.identify(f"usr_{n}")
        stream.close()
    assert not ours._addresses and not ours._unknown and not ours._users


def test_zero_is_no_limit() -> None:
    ours = limits()
    for _ in range(500):
        ours.open("198.51.100.1").identify("usr_1")

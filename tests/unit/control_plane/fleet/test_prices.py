"""Prices of slots: who sets them, which one counts, and what the log says."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from control_plane.accounts.models import AuditEntry
from control_plane.fleet.models import Slot, SlotPrice
from control_plane.fleet.prices import price_of


@pytest.mark.parametrize(
    ("device", "model", "price"),
    [("cuda", "H100", "3"), ("cuda", "L4", "1"), ("cpu", "Xeon", None)],
    ids=["of its model", "of its device", "none"],
)
def test_a_slot_has_the_price_of_its_model_else_of_its_device(
    device: str, model: str, price: str | None
) -> None:
    known = [
        SlotPrice(device="cuda", gpu_model="", per_hour=Decimal(1)),
        SlotPrice(device="cuda", gpu_model="H100", per_hour=Decimal(3)),
    ]
    found = price_of(Slot(device=device, model=model), known)
    assert found == (None if price is None else Decimal(price))


def put(person: Any, **body: Any) -> Any:
    return person.call("PUT", "/pools/default/prices", body)


def test_a_price_is_set_changed_and_removed_with_an_entry_each(alice: Any) -> None:
    assert put(alice, device="cuda", per_hour="2.5").json()["prices"] == [
        {"device": "cuda", "gpu_model": "", "per_hour": "2.5000"}
    ]
    put(alice, device="cuda", per_hour="2.5000")  # the same price again changes nothing
    put(alice, device="cuda", per_hour="3")
    assert put(alice, device="cuda", per_hour=None).json() == {"currency": "USD", "prices": []}
    assert put(alice, device="cuda", per_hour=None).status_code == 200
    entries = AuditEntry.objects.filter(action="pool.set_price").order_by("pk")
    changes = [entry.data["per_hour"] for entry in entries]
    assert [(change["before"], change["after"]) for change in changes] == [
        (None, "2.5000"), ("2.5000", "3.0000"), ("3.0000", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"device": "tpu", "per_hour": "1"}, "/device"),
        ({"device": "cpu", "per_hour": "-1"}, "/per_hour"),
        ({"device": "cpu", "per_hour": "cheap"}, "/per_hour"),
        ({"device": "cpu"}, "/per_hour"),
    ],
    ids=["unknown device", "negative", "no number", "missing"],
)
def test_a_wrong_price_names_its_field(alice: Any, body: dict[str, str], pointer: str) -> None:
    answer = put(alice, **body)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert not SlotPrice.objects.exists()


def test_who_does_not_manage_the_pool_reads_prices_only(alice: Any, person: Any) -> None:
    put(alice, device="cpu", per_hour="1")
    bob = person("bob", team="blue")
    assert bob.get("/pools/default/prices").json()["prices"][0]["per_hour"] == "1.0000"
    assert put(bob, device="cpu", per_hour="2").status_code == 403


def test_the_command_sets_and_lists_prices(alice: Any, oolong: Any) -> None:
    assert "2.5000" in oolong("pool", "price", "set", "cuda", "2.50", "--model", "H100").out
    assert "H100" in oolong("pool", "price", "list").out
    refused = oolong("pool", "price", "set", "cuda", "cheap")
    assert refused.code == 2 and "'cheap' is not a price" in refused.err

"""Prefixed ids that sort by the moment they were made: `run_01k9…` (48 bits of milliseconds, 80 random bits)."""

from __future__ import annotations

import secrets
import threading
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case
_lock = threading.Lock()
_last = 0


def new_id(prefix: str) -> str:
    """Ids of one process sort in the order they were made, also within a millisecond."""
    global _last
    with _lock:
        value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
        if value >> 80 <= _last >> 80:
            value = _last + 1 + secrets.randbits(40)
        _last = value
    digits = [_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5)]
    return f"{prefix}_{''.join(digits)}"


# Django stores the dotted name of a default in migrations, so each prefix is a named function.
def run_id() -> str:
    return new_id("run")


def attempt_id() -> str:
    return new_id("att")


def job_id() -> str:
    return new_id("job")


def dataset_id() -> str:
    return new_id("ds")


def dataset_version_id() -> str:
    return new_id("dsv")


def base_model_id() -> str:
    return new_id("bm")


def function_id() -> str:
    return new_id("fn")


def function_version_id() -> str:
    return new_id("fnv")


def checkpoint_id() -> str:
    return new_id("ckpt")


def node_id() -> str:
    return new_id("node")


def reservation_id() -> str:
    return new_id("res")


def maintenance_id() -> str:
    return new_id("mnt")


def token_id() -> str:
    return new_id("tok")


def secret_id() -> str:
    return new_id("sec")


def invitation_id() -> str:
    return new_id("inv")


def upload_id() -> str:
    return new_id("upl")


def upload_session_id() -> str:
    return new_id("ups")


def validation_id() -> str:
    return new_id("dsval")


def measurement_id() -> str:
    return new_id("dsm")


def model_import_id() -> str:
    return new_id("imp")


def model_check_id() -> str:
    return new_id("mchk")


def user_id() -> str:
    return new_id("usr")


def team_id() -> str:
    return new_id("team")


def project_id() -> str:
    return new_id("prj")


def reward_test_id() -> str:
    return new_id("rwt")


def view_id() -> str:
    return new_id("view")


def template_id() -> str:
    return new_id("tpl")


def sweep_id() -> str:
    return new_id("swp")


def webhook_id() -> str:
    return new_id("whk")


def webhook_event_id() -> str:
    return new_id("msg")


def webhook_delivery_id() -> str:
    return new_id("whd")


def playground_id() -> str:
    return new_id("pg")


def lease_id() -> str:
    return new_id("lease")

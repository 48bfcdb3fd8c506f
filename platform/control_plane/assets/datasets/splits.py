"""Splits derived from rows: a pure function, so that the same rows, ratios and seed give the same splits for ever.

Rows with the same prompt always share a split: what is held out has not been trained on under another row number.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence


def derive_splits(
    keys: Sequence[bytes], ratios: Mapping[str, float], *, seed: int, strata: Sequence[str] | None = None
) -> list[str]:
    """The split of every row. `keys` tell prompts apart; each stratum is divided by the ratios by itself.

    Within a stratum prompts are put in a seeded order and dealt out whole: each goes to the split that is
    furthest behind its share of the rows so far. A prompt that is in several strata belongs to its first one.
    """
    rows_of: dict[bytes, list[int]] = {}
    groups: defaultdict[str, list[bytes]] = defaultdict(list)
    for number, key in enumerate(keys):
        if key not in rows_of:
            rows_of[key] = []
            groups[strata[number] if strata is not None else ""].append(key)
        rows_of[key].append(number)
    total = sum(ratios.values())
    shares = {name: ratios[name] / total for name in sorted(ratios)}
    splits = [""] * len(keys)
    for stratum in sorted(groups):
        given = dict.fromkeys(shares, 0)
        dealt = 0
        for key in sorted(groups[stratum], key=lambda key: _order(seed, key)):
            dealt += len(rows_of[key])
            behind = max(shares, key=lambda name: shares[name] * dealt - given[name])
            given[behind] += len(rows_of[key])
            for number in rows_of[key]:
                splits[number] = behind
    return splits


def _order(seed: int, key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=16, salt=seed.to_bytes(8, "little")).digest()

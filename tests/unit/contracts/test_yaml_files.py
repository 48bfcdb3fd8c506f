"""YAML by hand: what says something twice or is no number is refused with its line."""

from __future__ import annotations

import pytest

from oolong.yaml_files import YamlFault, load_yaml


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: the key 'a' is there twice, first in line 1; keep one of them"),
        ("a:\n  b: 1\n  b: 2\n", "line 3: the key 'b' is there twice, first in line 2"),
        ("- {x: 1, x: 1}\n", "line 1: the key 'x' is there twice"),
        ("a: 1\nlearning_rate: .nan\n", "line 2: .nan is no number that JSON has; write a finite one"),
        ("x: [1.0, -.inf]\n", "line 1: -.inf is no number"),
        ("x: 1.0e+999\n", "line 1: 1.0e+999 is no number"),
        ("a: [\n", "line 2: "),
        ("a: \x00\n", "special characters are not allowed"),
        ("a: !!python/object:os.system 1\n", "line 1: could not determine a constructor"),
    ],
)
def test_a_fault_names_its_line(text: str, says: str) -> None:
    with pytest.raises(YamlFault) as fault:
        load_yaml(text)
    assert says in str(fault.value), fault.value


def test_merges_and_equal_keys_of_different_mappings_are_read() -> None:
    text = "base: &base {a: 1, b: 2}\none: {<<: *base, a: 3}\ntwo: {a: 1.5e+3}\n"
    assert load_yaml(text) == {"base": {"a": 1, "b": 2}, "one": {"a": 3, "b": 2}, "two": {"a": 1500.0}}

"""A backup restores parameters and optimizer state, and reuses its memory."""

from __future__ import annotations

import copy

import torch
from torch import nn

from trainers.rl.step_backup import StepBackup


def made() -> tuple[nn.Linear, torch.optim.AdamW, StepBackup]:
    torch.manual_seed(1)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return model, optimizer, StepBackup(list(model.parameters()), optimizer)


def update(model: nn.Linear, optimizer: torch.optim.AdamW) -> None:
    model(torch.ones(2, 4)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_restore_returns_the_state_of_the_newest_backup() -> None:
    model, optimizer, backup = made()
    untouched, _, _ = made()
    backup.begin()
    backup.wait()
    update(model, optimizer)
    backup.restore()
    assert not optimizer.state and all(map(torch.equal, model.parameters(), untouched.parameters()))

    update(model, optimizer)
    backup.begin()
    backup.wait()
    kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()["state"]))
    update(model, optimizer)
    assert not torch.equal(model.weight, kept[0]["weight"])
    backup.restore()
    assert all(torch.equal(value, kept[0][name]) for name, value in model.state_dict().items())
    for number, state in optimizer.state_dict()["state"].items():
        assert all(torch.equal(value, kept[1][number][name]) for name, value in state.items())


def test_backups_reuse_their_memory() -> None:
    model, optimizer, backup = made()
    update(model, optimizer)
    backup.begin()
    memory = [{name: one.data_ptr() for name, one in buffers.items()} for buffers in backup._buffers]
    update(model, optimizer)
    backup.begin()
    assert [{name: one.data_ptr() for name, one in buffers.items()} for buffers in backup._buffers] == memory

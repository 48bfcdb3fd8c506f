"""Host-side backup of parameters and optimizer state, to roll back a train step."""

from __future__ import annotations

import torch
from torch import nn


class StepBackup:
    """Backup in host memory, for train steps with several optimizer steps.

    A later minibatch may be non-finite after earlier ones have updated the weights. The whole step is then rolled back,
    so that a policy version always corresponds to a whole number of batches.
    """

    def __init__(self, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
        self._targets = parameters, optimizer
        self._parameters = [_host_copy(parameter.detach()) for parameter in parameters]
        self._moments = {
            number: {name: _host_copy(value) for name, value in optimizer.state[parameter].items()}
            for number, parameter in enumerate(parameters)
            if parameter in optimizer.state
        }

    @torch.no_grad()
    def restore(self) -> None:
        parameters, optimizer = self._targets
        for number, (parameter, saved) in enumerate(zip(parameters, self._parameters, strict=True)):
            _local(parameter).copy_(saved)
            if number not in self._moments:
                optimizer.state.pop(parameter, None)
                continue
            for name, value in self._moments[number].items():
                _local(optimizer.state[parameter][name]).copy_(value)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _host_copy(tensor: torch.Tensor) -> torch.Tensor:
    return _local(tensor).detach().to("cpu", copy=True)

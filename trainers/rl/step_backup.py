"""Host-side backup of parameters and optimizer state, to roll back a train step."""

from __future__ import annotations

import torch
from torch import nn

PARAMETER = "parameter"  # beside the names of the optimizer's state


class StepBackup:
    """Backup in host memory, for train steps with several optimizer steps.

    A later minibatch may be non-finite after earlier ones have updated the weights. The whole step is then rolled back,
    so that a policy version always corresponds to a whole number of batches.

    Host memory is allocated by the first backup and reused: fresh memory costs several times the copy. From a GPU the
    copies go to pinned memory on a stream of their own, so the forward passes before the first update hide them.
    """

    def __init__(self, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
        self._parameters, self._optimizer = parameters, optimizer
        self._buffers: list[dict[str, torch.Tensor]] = [{} for _ in parameters]
        self._saved: list[frozenset[str]] = []  # per parameter, the names that the newest backup holds
        on_gpu = any(parameter.is_cuda for parameter in parameters)
        self._stream = torch.cuda.Stream() if on_gpu else None

    @torch.no_grad()
    def begin(self) -> None:
        """Begin a backup. Nothing that it copies may change before `wait` returns."""
        if self._stream is None:
            self._copy()
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._copy()

    def wait(self) -> None:
        """Order the work that follows on the GPU behind the copies."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)

    @torch.no_grad()
    def restore(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()
        for parameter, buffers, saved in zip(self._parameters, self._buffers, self._saved, strict=True):
            if saved == {PARAMETER}:  # the optimizer had not stepped yet
                self._optimizer.state.pop(parameter, None)
            values = _values(parameter, self._optimizer)
            for name in saved:
                values[name].copy_(buffers[name])

    def _copy(self) -> None:
        self._saved = []
        for parameter, buffers in zip(self._parameters, self._buffers, strict=True):
            values = _values(parameter, self._optimizer)
            self._saved.append(frozenset(values))
            for name, value in values.items():
                if name not in buffers:
                    buffers[name] = torch.empty(value.shape, dtype=value.dtype, pin_memory=value.is_cuda)
                buffers[name].copy_(value, non_blocking=True)


def _values(parameter: nn.Parameter, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """This rank's shard of the parameter and of its optimizer state, by name."""
    state = optimizer.state.get(parameter, {})
    return {PARAMETER: _local(parameter.detach())} | {name: _local(value) for name, value in state.items()}


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor

# SPDX-License-Identifier: Apache-2.0
"""Several replicas in one process, each in a thread: the functions of torch.nn.parallel, for CPUs too.

    replicas = parallel.replicate(net, devices)             # devices may be ["cpu", "cpu"]
    outputs = parallel.parallel_apply(replicas, inputs)
    loss = parallel.gather([loss_of(y) for y in outputs], "cpu").mean()

Gradients of the replicas are added in the canonical tree's order, so a run gives the same bits each time
(but for dropout and what else draws at random on a CPU: all threads there share one generator). Synchronised
batch norms (lockstep.SyncBatchNorm, MinkowskiSyncBatchNorm) meet across the threads.

Code that calls torch.nn.parallel itself runs on CPUs after enable_cpu().
"""
from __future__ import annotations

import functools
import inspect
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

import torch
import torch.nn as nn
import torch.nn.parallel as torch_parallel

from . import tree
from .peers import Meeting, MeetingStopped, Peers, peers_scope

Module = TypeVar("Module", bound=nn.Module)

__all__ = ["enable_cpu", "gather", "parallel_apply", "replicate", "scatter"]


def _device(device: Any) -> torch.device:
    return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)


class _Broadcast(torch.autograd.Function):
    """Parameters -> R times the same on each device; gradients are added as the tree says."""

    @staticmethod
    def forward(ctx: Any, devices: List[torch.device], *params: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        ctx.devices = [param.device for param in params]
        return tuple(
            param.to(device) if param.device != device else param.detach().view_as(param)
            for device in devices
            for param in params
        )

    @staticmethod
    def backward(ctx: Any, *grads: Optional[torch.Tensor]) -> tuple:
        count = len(ctx.devices)
        sums = []
        for i, device in enumerate(ctx.devices):
            parts = [grad.to(device) for grad in grads[i::count] if grad is not None]
            sums.append(tree.sum_tensors(parts) if parts else None)
        return (None, *sums)


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> List[Module]:
    """A replica of the network for each device ("cpu" as often as wanted, or a GPU's number).

    Replicas on the network's own device share its weights. backward() through replicas adds to the network's own
    gradients (not with detach). The first replica moves the network's own buffers, the others copies.
    """
    targets = [_device(device) for device in devices]
    if not targets:
        raise ValueError("there are no devices, expected one at least")
    params = list(network.parameters())
    if detach or not torch.is_grad_enabled():
        copies = [param.detach().to(device) for device in targets for param in params]
    else:
        copies = list(_Broadcast.apply(targets, *params)) if params else []
    return [
        _replica(network, params, copies[r * len(params) : (r + 1) * len(params)], target, r)
        for r, target in enumerate(targets)
    ]


def _replica(network: Module, params: Any, copies: Any, device: torch.device, number: int) -> Module:
    own = {id(param): copy for param, copy in zip(params, copies)}
    buffers = {
        id(buffer): buffer if number == 0 and buffer.device == device else buffer.detach().to(device, copy=True)
        for buffer in network.buffers()
    }
    replicas = {module: module._replicate_for_data_parallel() for module in network.modules()}
    for module, replica in replicas.items():
        for name, child in module._modules.items():
            if child is not None:
                setattr(replica, name, replicas[child])
        for name, param in module._parameters.items():
            # Copies are no leaves, so they can be no nn.Parameter.
            setattr(replica, name, None if param is None else own[id(param)])
        for name, buffer in module._buffers.items():
            if buffer is not None:
                replica._buffers[name] = buffers[id(buffer)]
    return replicas[network]


def parallel_apply(
    modules: Sequence[Callable],
    inputs: Sequence[Any],
    kwargs_tup: Optional[Sequence[dict]] = None,
    devices: Optional[Sequence[Any]] = None,
) -> List[Any]:
    """modules[r](*inputs[r], **kwargs_tup[r]) for all r at once, each in a thread; an input that is no tuple or list is
    the one argument. Each thread on a CPU has one intra-op thread, and the caller's modes (gradients, autocast).

    Raises the first replica's error, with its type, when one fails; none is left waiting for it.
    """
    replicas = len(modules)
    if len(inputs) != replicas or (kwargs_tup is not None and len(kwargs_tup) != replicas):
        raise ValueError(
            f"there are {replicas} modules, {len(inputs)} inputs and {len(kwargs_tup or modules)} keyword arguments, "
            "expected as many of each"
        )
    targets = [None] * replicas if devices is None else [_device(device) for device in devices]
    results: List[Any] = [None] * replicas
    errors: List[Optional[BaseException]] = [None] * replicas
    meeting, modes = Meeting(replicas), _Modes()
    streams = [_current_stream(target) for target in targets]

    def run(r: int) -> None:
        given = tuple(inputs[r]) if isinstance(inputs[r], (list, tuple)) else (inputs[r],)
        try:
            torch.set_num_threads(1)  # of this thread
            with modes, _on(targets[r]), torch.cuda.stream(streams[r]), peers_scope(Peers(meeting, r)):
                results[r] = modules[r](*given, **(kwargs_tup[r] if kwargs_tup else {}))
            meeting.leave()
        except BaseException as error:  # noqa: BLE001  the caller's thread raises it
            errors[r] = error
            meeting.stop()

    threads_before = torch.get_num_threads()
    threads = [threading.Thread(target=run, args=(r,)) for r in range(replicas)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.set_num_threads(threads_before)  # torch takes the last call's number for threads to come
    _raise_first(errors)
    return results


def _current_stream(device: Optional[torch.device]) -> Optional[torch.cuda.Stream]:
    """The caller's: a new thread would work on the default one, which nothing orders after it."""
    on_cuda = torch.cuda.is_initialized() if device is None else device.type == "cuda"
    return torch.cuda.current_stream(device) if on_cuda else None


def _on(device: Optional[torch.device]) -> Any:
    return torch.cuda.device(device if device is not None and device.type == "cuda" else -1)


class _Modes:
    """The caller's thread-local modes, entered by each replica's thread."""

    def __init__(self) -> None:
        self._grad = torch.is_grad_enabled()
        self._autocast = [
            (kind, torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)
        ]
        self._local = threading.local()

    def __enter__(self) -> None:
        # Without the cache, which all threads would share.
        scopes = [torch.autocast(kind, dtype=dtype, cache_enabled=False) for kind, dtype in self._autocast]
        self._local.scopes = [torch.set_grad_enabled(self._grad), *scopes]
        for scope in self._local.scopes:
            scope.__enter__()

    def __exit__(self, *error: Any) -> None:
        for scope in reversed(self._local.scopes):
            scope.__exit__(*error)


def _raise_first(errors: Sequence[Optional[BaseException]]) -> None:
    failed = [(r, error) for r, error in enumerate(errors) if error is not None]
    if not failed:
        return
    # One that only failed because another had comes last.
    number, error = min(failed, key=lambda each: (isinstance(each[1], MeetingStopped), each[0]))
    if hasattr(error, "add_note"):
        error.add_note(f"in replica {number} of {len(errors)}")
    raise error


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Outputs of replicas on one device, joined along `dim`: tensors (numbers become a vector), sparse tensors (batch
    entries behind one another), and tuples, lists and dicts of them. Differentiable."""
    target, first = _device(target_device), outputs[0]
    if isinstance(first, torch.Tensor):
        parts = [output.to(target) for output in outputs]
        return torch.stack(parts) if first.dim() == 0 else torch.cat(parts, dim)
    if first is None:
        return None
    if hasattr(first, "_gather"):  # sparse tensors, of which this package need not know
        return first._gather(outputs, target)
    if isinstance(first, dict):
        return type(first)((key, gather([output[key] for output in outputs], target, dim)) for key in first)
    if isinstance(first, (tuple, list)):
        parts = [gather(list(each), target, dim) for each in zip(*outputs)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    raise TypeError(f"gather got a {type(first).__name__}, expected tensors, or tuples, lists and dicts of them")


def scatter(inputs: Any, devices: Sequence[Any], dim: int = 0) -> List[Any]:
    """A share of the inputs for each device, in runs whose sizes differ by at most one, the longer ones first: tensors,
    sparse tensors (by batch entries), and tuples, lists and dicts of them; anything else goes to all. Differentiable."""
    targets = [_device(device) for device in devices]
    if isinstance(inputs, torch.Tensor):
        parts = torch.tensor_split(inputs, len(targets), dim)
        return [part.to(target) for part, target in zip(parts, targets)]
    if hasattr(inputs, "_scatter"):
        return inputs._scatter(targets)
    if isinstance(inputs, dict):
        by_key = {key: scatter(value, targets, dim) for key, value in inputs.items()}
        return [type(inputs)((key, parts[r]) for key, parts in by_key.items()) for r in range(len(targets))]
    if isinstance(inputs, (tuple, list)):
        shares = [scatter(each, targets, dim) for each in inputs]
        rows = [[part[r] for part in shares] for r in range(len(targets))]
        return [type(inputs)(*row) if hasattr(inputs, "_fields") else type(inputs)(row) for row in rows]
    return [inputs] * len(targets)


class enable_cpu:
    """Lets code that calls torch.nn.parallel run on CPUs, unchanged: where a device is a CPU, or none is named and the
    tensors lie on one, torch.nn.parallel.replicate, parallel_apply, gather and scatter are this module's functions.

        lockstep.parallel.enable_cpu()               # until undo()
        with lockstep.parallel.enable_cpu(): ...     # within the block

    It changes these four names of torch.nn.parallel, for the whole process, and nothing else. On GPUs they remain
    torch's own, and so do DataParallel and names that a program imported from torch.nn.parallel before.
    """

    def __init__(self) -> None:
        self._before: Dict[str, Callable] = {}
        for name in ("gather", "parallel_apply", "replicate", "scatter"):
            theirs = getattr(torch_parallel, name)
            self._before[name] = theirs
            setattr(torch_parallel, name, _ours_on_cpus(globals()[name], theirs))

    def undo(self) -> None:
        """Gives torch.nn.parallel the functions back that it had before. A second call does nothing."""
        for name, theirs in self._before.items():
            setattr(torch_parallel, name, theirs)
        self._before = {}

    def __enter__(self) -> "enable_cpu":
        return self

    def __exit__(self, *error: Any) -> None:
        self.undo()

    def __repr__(self) -> str:
        names = ", ".join(self._before) or "nothing"
        return f"{type(self).__name__}(changed in torch.nn.parallel: {names})"


def _ours_on_cpus(ours: Callable, theirs: Callable) -> Callable:
    signature = inspect.signature(theirs)

    @functools.wraps(theirs)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        values = given.arguments
        # gather() is told by what it gathers: torch's own takes a CPU as the target of tensors on GPUs.
        devices = values.get("devices", values.get("target_gpus"))
        if devices is None:
            devices = [leaf.device for leaf in _tensors(values.get("outputs", values.get("inputs")))]
        on_cpu = any(device is not None and _device(device).type == "cpu" for device in devices)
        return ours(*given.args, **given.kwargs) if on_cpu else theirs(*args, **kwargs)

    return call


def _tensors(value: Any) -> List[Any]:
    """The tensors in tuples, lists and dicts, sparse ones among them."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in _tensors(each)]
    return [value] if isinstance(getattr(value, "device", None), torch.device) else []

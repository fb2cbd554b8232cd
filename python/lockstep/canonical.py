# SPDX-License-Identifier: Apache-2.0
"""Gradients of R replicas, averaged in the canonical tree's order by DistributedDataParallel's processes.

A sum of floating-point numbers depends on its order. Here the order is that of the balanced binary tree over the
replicas' numbers, wherever they run: the same bits on 1, 2 or R processes.
"""
from typing import Any, Dict, Iterator, List, Optional, Union

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import groups, tree
from .sampler import share

__all__ = ["Replicas", "canonical_hook"]


class _Nodes:
    """Where R replicas run, and the nodes of the tree that each process contributes."""

    def __init__(self, replicas: int, processes: int) -> None:
        if replicas < processes:
            raise ValueError(f"there are {replicas} replicas on {processes} processes, expected one each at least")
        self.replicas = replicas
        self.blocks = [share(replicas, process, processes) for process in range(processes)]
        self.spans = [tree.block_nodes(replicas, block.start, block.stop) for block in self.blocks]

    def merge(self, leaves: List[torch.Tensor], block: range) -> List[torch.Tensor]:
        """The block's nodes of its replicas' tensors."""
        spans = tree.block_nodes(self.replicas, block.start, block.stop)
        return [tree.sum_tensors(leaves[a - block.start : b - block.start]) for a, b in spans]

    def root(self, nodes: List[torch.Tensor]) -> torch.Tensor:
        """The sum of all processes' nodes, from left to right."""
        spans = [span for process in self.spans for span in process]
        return _complete(list(zip(spans, nodes)), 0, self.replicas)


def _complete(nodes: List[tuple], begin: int, end: int) -> torch.Tensor:
    """The tree's node [begin, end), put together of the nodes below it that there are."""
    for span, value in nodes:
        if span == (begin, end):
            return value
    half = 1 << ((end - begin - 1).bit_length() - 1)
    return _complete(nodes, begin, begin + half) + _complete(nodes, begin + half, end)


class _Exchange:
    """One bucket on its way: each process owns a slice, gets all nodes of it, adds them and gives the sum to all."""

    def __init__(self, nodes: _Nodes, mine: List[torch.Tensor], group: Optional[dist.ProcessGroup]) -> None:
        self.nodes, self.group, self.like = nodes, group, mine[0]
        self.rank, self.processes = groups.rank_of(group), groups.size_of(group)
        self.length = -(-mine[0].numel() // self.processes)
        padded = mine[0].new_zeros(len(mine), self.processes * self.length)
        for row, node in zip(padded, mine):
            row[: node.numel()] = node
        counts = [len(spans) for spans in nodes.spans]
        given = padded.view(len(mine), self.processes, self.length).transpose(0, 1).contiguous()
        self.received = given.new_empty(sum(counts), self.length)
        received_flat, given_flat = self.received.view(-1), given.view(-1)
        groups.lend(received_flat, given_flat)
        self.work: Any = dist.all_to_all_single(
            received_flat,
            given_flat,
            [count * self.length for count in counts],
            [len(mine) * self.length] * self.processes,
            group=group,
            async_op=True,
        )

    def add_slice(self) -> None:
        self.work.wait()
        mine = (self.nodes.root(list(self.received)) / self.nodes.replicas).contiguous()
        self.result = mine.new_empty(self.processes * self.length)
        groups.lend(self.result, mine)
        self.work = dist.all_gather_into_tensor(self.result, mine, group=self.group, async_op=True)

    def finish(self) -> torch.Tensor:
        self.work.wait()
        return self.result[: self.like.numel()]


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill a run of memory, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size())):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


class Replicas:
    """The replicas of this process, one after the other, for a DistributedDataParallel model.

        model = DistributedDataParallel(net)
        replicas = lockstep.Replicas(model, 8)       # 8 over all processes, in runs that differ by at most one
        for inputs, targets in batches:              # the whole batch's shares, or those of this process
            for r in replicas:                       # each does its forward and backward pass
                loss_of(model(inputs[r]), targets[r]).backward()
            optimizer.step()
            optimizer.zero_grad()

    The gradients are the mean over all replicas, added in the tree's order: the same bits for any number of processes, if
    each replica's pass gives the same bits wherever it runs (the same number of intra-op threads). Layers that need all
    replicas at once, synchronised batch norms, want one replica a process.
    """

    def __init__(self, model: DistributedDataParallel, replicas: Optional[int] = None) -> None:
        if model.static_graph:
            raise ValueError("the model has static_graph=True, expected False: the passes of its replicas differ")
        self.group: Optional[dist.ProcessGroup] = model.process_group
        self.model = model
        self.nodes = _Nodes(replicas or groups.size_of(self.group), groups.size_of(self.group))
        self.block = self.nodes.blocks[groups.rank_of(self.group)]
        self._kept: List[Dict[int, torch.Tensor]] = []  # gradients of the replicas before the last, by parameter
        self._under_way: List[tuple] = []
        model.register_comm_hook(self, canonical_hook)

    def __len__(self) -> int:
        return len(self.block)

    def __iter__(self) -> Iterator[int]:
        """This process's replica numbers; the exchange happens in the last one's backward pass."""
        params = [param for param in self.model.parameters() if param.requires_grad]
        if any(param.grad is not None for param in params):
            raise ValueError("there are gradients already, expected none: call zero_grad() after each step")
        self._kept = []
        for replica in self.block[:-1]:
            with self.model.no_sync():
                yield replica
            self._kept.append({id(param): param.grad for param in params if param.grad is not None})
            for param in params:
                param.grad = None
        yield self.block[-1]
        self._kept = []

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        last = bucket.buffer()
        leaves = [self._flat(bucket, kept) for kept in self._kept] + [last]
        if len(leaves) != len(self.block):
            raise RuntimeError(
                f"{len(leaves)} replicas have done their backward pass, expected {len(self.block)}: loop over Replicas"
            )
        mine = self.nodes.merge(leaves, self.block)
        devices: List[Union[int, str, torch.device]] = [last.device] if last.is_cuda else []
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
        self._under_way.append((future, last, _Exchange(self.nodes, mine, self.group)))
        if bucket.is_last():
            self._finish()
        return future

    def _flat(self, bucket: dist.GradBucket, kept: Dict[int, torch.Tensor]) -> torch.Tensor:
        """A replica's gradients laid out as the bucket's are; zero where it had none."""
        flat = torch.zeros_like(bucket.buffer())
        begin = 0
        for param in bucket.parameters():
            if id(param) in kept:
                # Gradients lie in a bucket as their parameters do in memory (channels last, say).
                strides = param.stride() if _is_dense(param) else torch.empty(param.shape, device="meta").stride()
                flat.as_strided(param.size(), strides, begin).copy_(kept[id(param)])
            begin += param.numel()
        return flat

    def _finish(self) -> None:
        """Collectives follow one another in the same order on all ranks."""
        under_way, self._under_way = self._under_way, []
        for _, _, exchange in under_way:
            exchange.add_slice()
        for future, buffer, exchange in under_way:
            buffer.copy_(exchange.finish())
            future.set_result(buffer)


class _OneEach(Replicas):
    """One replica a process: plain DistributedDataParallel."""

    def __init__(self, group: Optional[dist.ProcessGroup]) -> None:
        self.group = group
        self.nodes = _Nodes(groups.size_of(group), groups.size_of(group))
        self.block = self.nodes.blocks[groups.rank_of(group)]
        self._kept, self._under_way = [], []


# From the first bucket of a backward pass to its last alone: what held a group for longer would keep its threads alive
# beyond destroy_process_group(), until the interpreter is torn down under them.
_states: Dict[object, _OneEach] = {}


def canonical_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook: gradients averaged over replicas in the canonical tree's order.

        model = DistributedDataParallel(net)
        model.register_comm_hook(None, lockstep.canonical_hook)

    With `state` None each process is one replica; a process group says which processes; lockstep.Replicas registers the
    hook by itself, for several replicas a process.
    """
    if isinstance(state, Replicas):
        return state.reduce(bucket)
    group = dist.group.WORLD if state is None else state
    if group not in _states:
        _states[group] = _OneEach(group)
    future = _states[group].reduce(bucket)
    if bucket.is_last():
        del _states[group]
    return future

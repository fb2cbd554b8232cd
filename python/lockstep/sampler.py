# SPDX-License-Identifier: Apache-2.0
"""Which examples a process trains on: each once an epoch, on any number of processes, resumed anywhere."""
from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Sequence, Sized, Union

import torch.distributed as dist
from torch.utils.data import Sampler

from . import groups
from ._C import Order

__all__ = ["ExactSampler", "Order"]


def make_order(kind: str, *arguments: Any) -> Order:
    """An order as its pickle says that it was made."""
    return getattr(Order, kind)(*arguments)


def share(size: int, number: int, shares: int) -> range:
    """The part of 0 .. size-1 that is share `number` of `shares`: runs whose sizes differ by at most one, the longer
    ones first."""
    begin = number * (size // shares) + min(number, size % shares)
    return range(begin, begin + size // shares + (number < size % shares))


class ExactSampler(Sampler[List[int]]):
    """A DataLoader's batch_sampler: the global sequence of examples, cut in global batches, each cut in one share a
    process.

        sampler = lockstep.ExactSampler(dataset, batch_size=64, seed=1)   # 64 over all processes
        loader = DataLoader(dataset, batch_sampler=sampler)
        for epoch in range(10):
            for batch in loader:
                ...
                sampler.advance()           # this batch has been trained on: only for checkpoints within an epoch
            checkpoint = sampler.state_dict()

    A loop that never calls advance() goes through the next epoch when it begins anew after a whole one.

    Each example is given out exactly once an epoch, whatever the number of processes, none twice to fill up; the last
    batch may be smaller. Users choose the order (`order`: a lockstep.Order, a list of ids, or shuffled and sequential
    ones by `shuffle`), never the cut. All processes have the same number of batches; where the last global batch has
    fewer examples than there are processes some shares are empty lists, which the collate_fn must take, or
    drop_last=True leaves it out.

    The state is one global cursor: state_dict() of any process resumes training on any number of them.
    """

    def __init__(
        self,
        data: Union[Sized, int],
        batch_size: int,
        order: Optional[Union[Order, Sequence[int]]] = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        rank: Optional[int] = None,
        processes: Optional[int] = None,
        group: Optional[dist.ProcessGroup] = None,
    ) -> None:
        examples = data if isinstance(data, int) else len(data)
        if order is None:
            order = Order.shuffled(examples, seed) if shuffle else Order.sequential(examples)
        elif not isinstance(order, Order):
            order = Order.of(examples, [int(number) for number in order])
        if order.examples != examples:
            raise ValueError(f"the order is of {order.examples} examples, expected {examples} as the data has")
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected 1 or more")
        self.order, self.batch_size, self.drop_last = order, batch_size, drop_last
        self.rank = groups.rank_of(group) if rank is None else rank
        self.processes = groups.size_of(group) if processes is None else processes
        if not 0 <= self.rank < self.processes:
            raise ValueError(f"rank is {self.rank}, expected 0 to {self.processes - 1}")
        self.epoch, self._position = 0, 0
        self._advanced = False  # since the last loop began
        self._whole = False  # all batches were given out, and none was said to have been trained on

    @property
    def _end(self) -> int:
        """The positions of an epoch that are given out."""
        size = len(self.order)
        return size - size % self.batch_size if self.drop_last else size

    def __len__(self) -> int:
        """The batches that are left of this epoch."""
        return -(-(self._end - self._position) // self.batch_size)

    def __iter__(self) -> Iterator[List[int]]:
        if self._whole:
            self.set_epoch(self.epoch + 1)
        self._advanced = False
        return self._batches()

    def _batches(self) -> Iterator[List[int]]:
        for begin in range(self._position, self._end, self.batch_size):
            end = min(begin + self.batch_size, self._end)
            mine = share(end - begin, self.rank, self.processes)
            yield self.order.ids(self.epoch, begin + mine.start, begin + mine.stop).tolist()
        self._whole = not self._advanced

    def advance(self) -> None:
        """One more global batch has been trained on; after an epoch's last one the next epoch begins. Call it in step
        with training: the loader's workers draw batches ahead."""
        self._advanced, self._whole = True, False
        self._position += self.batch_size
        if self._position >= self._end:
            self.epoch, self._position = self.epoch + 1, 0

    def set_epoch(self, epoch: int) -> None:
        """Goes to the beginning of an epoch, as DistributedSampler does."""
        if epoch < 0:
            raise ValueError(f"epoch is {epoch}, expected 0 or more")
        self.epoch, self._position, self._whole = epoch, 0, False

    def state_dict(self) -> Dict[str, Any]:
        """What has been trained on, by all processes."""
        return {"epoch": self.epoch, "position": self._position, "order": repr(self.order)}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Raises ValueError where the state is of another order."""
        if state["order"] != repr(self.order):
            raise ValueError(f"the state is of {state['order']}, expected {self.order!r}")
        if not 0 <= state["position"] < max(self._end, 1):
            raise ValueError(f"the state's position is {state['position']}, expected 0 to {self._end - 1}")
        self.epoch, self._position, self._whole = state["epoch"], state["position"], False

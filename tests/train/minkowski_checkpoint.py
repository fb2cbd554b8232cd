# SPDX-License-Identifier: Apache-2.0
"""minkowski_checkpoint.py NAMES FILE: what a MinkowskiEngine user's torch.save(net.state_dict(), FILE) writes, for a
network whose tensors NAMES lists as lines "NAME [SIZES]", with numbers that make it neither blow up nor die away."""

import ast
import collections
import math
import sys

import torch


def value_of(name, sizes):
    if name.endswith("num_batches_tracked"):
        return torch.tensor(17)
    if name.endswith("running_var"):
        return 0.5 + torch.rand(sizes)
    if name.endswith(".bn.weight"):
        return 0.8 + 0.4 * torch.rand(sizes)
    if name.endswith("kernel"):
        return torch.randn(sizes) * math.sqrt(2 / math.prod(sizes[:-1]))
    return 0.1 * torch.randn(sizes)


torch.manual_seed(34)
state = collections.OrderedDict()
for line in open(sys.argv[1], encoding="utf-8"):
    name, sizes = line.split(" ", 1)
    state[name] = value_of(name, ast.literal_eval(sizes))
state._metadata = collections.OrderedDict({"": {"version": 1}})
torch.save(state, sys.argv[2])

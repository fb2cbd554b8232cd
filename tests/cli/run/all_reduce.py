# SPDX-License-Identifier: Apache-2.0
# A plain torch.distributed program that knows nothing of lockstep.
import signal
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.full((3,), float(dist.get_rank() + 1))
dist.all_reduce(value)
print(f"sum {value.tolist()} of {dist.get_world_size()}", flush=True)
if "stay" in sys.argv:  # until the test has seen its sockets
    signal.pause()
dist.destroy_process_group()

# SPDX-License-Identifier: Apache-2.0
"""The doctor: runs a multi-device training of anybody's, watches every rank from inside, and names what is wrong.

    python -m lockstep.doctor [--steps N] [--json FILE] -- torchrun --nproc-per-node 2 train.py ARGS...

command runs the program, watch/ is what runs inside its processes, logs/ reads what they wrote, rules/ judges it,
compare/ judges several runs.
The page of the codes: docs/use/doctor.md.
"""

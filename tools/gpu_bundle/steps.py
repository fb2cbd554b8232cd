# SPDX-License-Identifier: Apache-2.0
"""What `run` does, most telling first. A step is a few shell commands that run in the bundle's folder, with $OUT."""

import dataclasses
import re

# What a step may need beside torch; `run` finds out what is there.
DEVICE, TWO_DEVICES, SANITIZER, NCU = "a CUDA device", "two CUDA devices", "compute-sanitizer", "ncu"
PYTHON = "the Python that the bundle was built for"


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    commands: tuple[str, ...]
    needs: tuple[str, ...] = (DEVICE,)
    seconds: int = 60  # each command's limit
    alone: bool = False  # it measures; steps that don't and follow each other run at once


# What of the sparse tests is small enough for tools that watch every access to memory.
SMALL = "'*ConvolveAsTheCpuDoes:*ConvolveGroups:*ConvolveAsWellInWholePacks:*FindThePairs*:*InsertAsTheCpuDoes:*SumRows*:*NormalizeAs*'"
TRAIN = "bin/lockstep train {} --devices cuda:0 --seed 1 --overwrite --out $OUT/{}"


def training(model: str, folder: str, options: str) -> str:
    return TRAIN.format(model, folder) + " " + options


IMAGES = (
    "--data synthetic:3x224x224:1000:2048 --test-examples 64 --batch 256 --replicas 1 --steps 30 --log-every 5 --amp bf16 "
    "--workers 12"
)
CLOUDS = (
    "--data rooms:64 --test-examples 2 --voxel 0.02 --batch 8 --replicas 1 --steps 16 --log-every 4 --amp fp16 "
    "--workers 12"
)
FEW_CLOUDS = CLOUDS.replace("rooms:64", "rooms:4").replace("--batch 8", "--batch 2")
DIGITS = "--data synthetic:1x28x28:10:8192 --test-examples 64 --batch 256 --replicas 8 --steps 60 --log-every 20"

SMALL_IMAGES = (
    "--data synthetic:3x32x32:10:512 --test-examples 64 --batch 64 --replicas 8 --steps 6 --log-every 2 --sync-bn"
)


def same(a: str, b: str) -> str:
    """Whether two trainings ended in the same weights."""
    return (
        f'a=$(bin/lockstep hash $OUT/{a}/weights.pt); b=$(bin/lockstep hash $OUT/{b}/weights.pt); echo "$a $b"; '
        '[ -n "$a" ] && [ "$a" = "$b" ]'
    )


def sanitizer(tool: str) -> Step:
    return Step(tool, (f"compute-sanitizer --tool {tool} --error-exitcode 9 tests/sparse_cuda_test --gtest_filter={SMALL}",),
                (DEVICE, SANITIZER), 150)  # fmt: skip


def kernels_of(model: str, options: str) -> str:
    """What each kernel of some steps took: one counter, so no kernel is run twice."""
    options = re.sub("--steps [0-9]+", "--steps 4", options)
    return (
        f"ncu --metrics gpu__time_duration.sum --csv --log-file $OUT/{model}-kernels.csv --launch-skip 1500 --launch-count 3000 "
        f"{training(model, 'kernels', options)}; "
        f"$PYTHON kernel_times.py $OUT/{model}-kernels.csv"
    )


STEPS = (
    Step("libraries", ("ldd bin/* tests/* python/lockstep/*.so", "! ldd bin/* tests/* | grep 'not found'"), (), alone=True),
    Step("device", ("nvidia-smi", "bin/lockstep info", "bin/lockstep info | grep cuda:0"), alone=True),
    Step("sparse kernels, a suite at a time", ("suites tests/sparse_cuda_test",), (DEVICE,), 90),
    Step("random numbers, bit by bit", ("tests/numerics_test --gtest_filter='*cuda*'",)),
    Step("sums in the tree, bit by bit", ("tests/parallel_cuda_test --gtest_filter='CudaReduce*'",)),
    Step("a team of eight on one GPU", ("tests/parallel_cuda_test --gtest_filter='*CudaTeam*'",), (DEVICE,), 150),
    Step(
        "the same training twice",
        (
            training("lenet", "twice-a", DIGITS),
            training("lenet", "twice-b", DIGITS),
            same("twice-a", "twice-b"),
        ),
    ),
    Step(
        "two processes on one GPU",
        (
            training("resnet18", "one-process", SMALL_IMAGES),
            "bin/lockstep run -n 2 -- " + training("resnet18", "two-processes", SMALL_IMAGES),
            same("one-process", "two-processes"),
        ),
        (DEVICE,),
        90,
    ),
    Step("python packages", ("PYTHONPATH=python $PYTHON check_python.py",), (DEVICE, PYTHON)),
    *map(sanitizer, ("memcheck", "racecheck", "synccheck", "initcheck")),
    Step("cuda_bench", ("bin/cuda_bench --voxels 100000 --json $OUT/cuda_bench.json",), (DEVICE,), 150, alone=True),
    Step("MinkUNet34C", (training("minkunet34c", "minkunet34c", CLOUDS),), (DEVICE,), 120, alone=True),
    Step("ResNet-50", (training("resnet50", "resnet50", IMAGES),), (DEVICE,), 120, alone=True),
    Step("LeNet", (training("lenet", "lenet", DIGITS),), alone=True),
    Step("kernels of MinkUNet34C", (kernels_of("minkunet34c", FEW_CLOUDS),), (DEVICE, NCU), 120, alone=True),
    Step("PyTorch's ResNet-50", ("$PYTHON torch_resnet.py",), (DEVICE,), 120, alone=True),
    Step("kernels of ResNet-50", (kernels_of("resnet50", IMAGES),), (DEVICE, NCU), 120, alone=True),
    Step(
        "four kernels under ncu",
        tuple(
            f"ncu --set full --kernel-name regex:{kernel} --launch-skip 20 --launch-count 1 bin/cuda_bench --voxels 100000 "
            "--rounds 1"
            for kernel in ("forward_kernel", "weight_kernel", "reduce_kernel", "SliceMoments")
        ),
        (DEVICE, NCU),
        60,
        alone=True,
    ),
    Step(
        "two processes over NCCL",
        (
            "bin/lockstep run -n 2 -- bin/lockstep selftest --backend nccl",
            "bin/lockstep run -n 2 -- " + training("lenet", "two", DIGITS).replace(" --devices cuda:0", ""),
            same("twice-a", "two"),
        ),
        (TWO_DEVICES,),
        alone=True,
    ),
    Step("one of two killed", ("killed",), (TWO_DEVICES,), 90, alone=True),
)

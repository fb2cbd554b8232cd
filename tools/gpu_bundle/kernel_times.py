# SPDX-License-Identifier: Apache-2.0
"""What a program's kernels took together, by name: kernel_times.py FILE, which ncu wrote with --csv."""

import collections
import csv
import pathlib
import sys

SHOWN = 40
UNITS = {"ns": 1e-6, "nsecond": 1e-6, "us": 1e-3, "usecond": 1e-3, "ms": 1.0, "msecond": 1.0}


def main() -> None:
    lines = pathlib.Path(sys.argv[1]).read_text().splitlines()
    table = csv.DictReader(line for line in lines if line.startswith('"'))
    times: dict[str, list[float]] = collections.defaultdict(list)
    for row in table:
        times[row["Kernel Name"]].append(float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]])
    whole = sum(map(sum, times.values()))
    print(f"{sum(map(len, times.values()))} launches, {whole:.2f} ms\nshare     ms  launches  kernel")
    for name, took in sorted(times.items(), key=lambda each: -sum(each[1]))[:SHOWN]:
        print(f"{sum(took) / whole:5.1%} {sum(took):6.2f}  {len(took):8}  {name[:150]}")


if __name__ == "__main__":
    main()

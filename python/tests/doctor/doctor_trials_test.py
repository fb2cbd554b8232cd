# SPDX-License-Identifier: Apache-2.0
"""The doctor's command where it runs a program more than once."""
import sys

from doctor_command_test import PROGRAMS, TORCHRUN, doctor


def test_two_runs_of_one_seed_that_differ(tmp_path):
    program = [sys.executable, "-B", PROGRAMS / "rescue.py", "4-before"]
    code, text, found = doctor("--runs", "2", "--html", tmp_path / "page.html", "--", *program, folder=tmp_path)
    assert code == 1, text
    finding = next(each for each in found if each["code"] == "nondeterministic-operation")
    assert "step 0" in finding["evidence"][0] and "in '1', at rescue.md:" in finding["evidence"][0]
    page = (tmp_path / "page.html").read_text()
    assert "nondeterministic-operation" in page and page.count("<rect") > 20 and page.count("<polyline") == 2


def test_another_number_of_ranks(tmp_path):
    program = [sys.executable, "-B", PROGRAMS / "models.py", "manual-sum"]
    code, text, _ = doctor("--ranks", "1,2", "--", *program, folder=tmp_path)
    assert code == 2 and "{ranks}" in text
    launched = [*TORCHRUN[:-1], "{ranks}", PROGRAMS / "data.py", "healthy"]
    code, text, found = doctor("--ranks", "1,2", "--", *launched, folder=tmp_path)
    assert code == 0 and "times as fast" in text, text
    finding = next(each for each in found if each["code"] == "depends-on-ranks")
    assert finding["severity"] == "note" and "the learning rates are [0.02] on 2 and [0.01] on 1 ranks" in finding["evidence"][1]

# SPDX-License-Identifier: Apache-2.0
"""The checks of ./dev lint find what they are there for: each is shown a planted mistake."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "lint"))
sys.dont_write_bytecode = True

import layers  # noqa: E402
import local_names  # noqa: E402
import options  # noqa: E402
import text  # noqa: E402
import tree  # noqa: E402

LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"


def project(contents: dict[str, str]) -> tempfile.TemporaryDirectory:
    """A project of these files, known to git."""
    folder = tempfile.TemporaryDirectory()
    subprocess.run(["git", "init", "-q"], cwd=folder.name, check=True)
    for name, content in contents.items():
        path = pathlib.Path(folder.name) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


class Layers(unittest.TestCase):
    def problems(self, contents: dict[str, str]) -> list[str]:
        with project(contents) as folder:
            return layers.check(pathlib.Path(folder))

    def test_an_include_against_the_direction_is_found_with_its_line(self):
        found = self.problems({"include/lockstep/numerics/tree.h": LICENCE + '#include "lockstep/comm/group.h"\n'})
        self.assertEqual(len(found), 1)
        self.assertIn("include/lockstep/numerics/tree.h:2: numerics includes lockstep/comm/group.h of comm", found[0])

    def test_an_include_between_layers_that_stand_side_by_side_is_found(self):
        self.assertEqual(len(self.problems({"src/sparse/map.cpp": '#include "lockstep/comm/group.h"\n'})), 1)
        self.assertEqual(len(self.problems({"tests/data/order_test.cpp": '#include "lockstep/parallel/team.h"\n'})), 1)

    def test_a_layer_s_tests_may_see_more_than_the_layer(self):
        line = '#include "lockstep/parallel/team.h"\n'
        self.assertEqual(self.problems({"tests/models/placement_test.cpp": line}), [])
        self.assertEqual(len(self.problems({"src/models/lenet.cpp": line})), 1)

    def test_angle_brackets_hide_nothing(self):
        self.assertEqual(len(self.problems({"src/numerics/tree.cpp": "#include <lockstep/comm/group.h>\n"})), 1)

    def test_a_layer_sees_all_that_it_stands_on(self):
        lines = "".join(f'#include "lockstep/{layer}/x.h"\n' for layer in layers.USES)
        self.assertEqual(self.problems({"src/cli/main.cpp": lines}), [])

    def test_a_private_header_stays_in_its_layer(self):
        self.assertEqual(self.problems({"src/comm/group.cpp": '#include "comm/backend.h"\n'}), [])
        self.assertEqual(len(self.problems({"src/parallel/team.cpp": '#include "comm/backend.h"\n'})), 1)
        self.assertEqual(len(self.problems({"include/lockstep/comm/group.h": '#include "comm/backend.h"\n'})), 1)

    def test_the_whole_of_torch_is_kept_out_of_low_public_headers(self):
        self.assertEqual(len(self.problems({"include/lockstep/comm/group.h": "#include <torch/torch.h>\n"})), 1)
        self.assertEqual(self.problems({"include/lockstep/train/fit.h": "#include <torch/torch.h>\n"}), [])

    def test_a_link_line_against_the_direction_is_found(self):
        line = "lockstep_layer(NAME numerics SOURCES a.cpp USES lockstep::comm lockstep::torch)\n"
        self.assertEqual(len(self.problems({"src/numerics/CMakeLists.txt": line})), 1)

    def test_the_page_s_table_is_the_diagram(self):
        rows = [f"| `{layer}` | {', '.join(uses)} | what it is |\n" for layer, uses in layers.USES.items()]
        self.assertEqual(layers.check_page("".join(rows).replace("|  |", "| |")), [])
        self.assertEqual(len(layers.check_page("".join(rows[:-1]))), 1)
        self.assertEqual(len(layers.check_page("".join(rows).replace("`base` |  |", "`base` | cli |"))), 1)

    def test_a_folder_that_is_no_layer_is_found(self):
        self.assertEqual(len(self.problems({"include/lockstep/misc/x.h": LICENCE})), 1)


class LocalNames(unittest.TestCase):
    def problems(self, contents: dict[str, str]) -> list[str]:
        with project(contents) as folder:
            return local_names.check(pathlib.Path(folder))

    def of_sources(self, *bodies: str) -> list[str]:
        """Of sources of one layer, each with this in its namespace without a name."""
        return self.problems({f"src/comm/{number}.cpp": "namespace lockstep {\nnamespace {\n" + body + "\n}  // namespace\n}\n"
                              for number, body in enumerate(bodies)})

    def test_names_that_two_sources_of_a_layer_keep_for_themselves_are_found(self):
        found = self.of_sources("constexpr int kMost = 3;", "// kMost\nconstexpr int kMost = 3;")
        self.assertEqual(len(found), 1)
        self.assertIn("src/comm/1.cpp:4: 'kMost' is declared at src/comm/0.cpp:3 too", found[0])
        self.assertEqual(len(self.of_sources("struct Pair { int a; };", "template <class T>\nclass Pair final : Base<T> {};")), 1)
        self.assertEqual(len(self.of_sources("using Set = std::set<int>;", "using Set = std::set<char>;")), 1)
        self.assertEqual(len(self.of_sources("int cut(int a, int b) { return a; }", "int cut(int c, int d = 2) {}")), 1)
        self.assertEqual(len(self.of_sources("thread_local std::map<int, int> seen{};", "void seen(int a);")), 1)

    def test_names_that_the_compiler_tells_apart_are_none(self):
        self.assertEqual(self.of_sources("int cut(int a) { int b = 1; }", "int cut(double a) { int b = 2; }"), [])
        self.assertEqual(self.of_sources("using Set = std::set<int>;", "using Set = std::set<int>;"), [])
        self.assertEqual(self.of_sources("// struct Pair {};", 'const char* text = "struct Pair {};";', "struct Pair {};"), [])
        self.assertEqual(self.of_sources("TEST(A, B) {\n}", "TEST(A, C) {\n}"), [])
        self.assertEqual(self.problems({"src/a/a.cpp": "namespace { int one; }", "src/b/b.cpp": "namespace { int one; }"}), [])

    def test_a_name_of_a_header_is_nobody_s_own(self):
        header = {"include/lockstep/comm/a.h": "namespace lockstep {\nclass Pair;\n}\n"}
        self.assertEqual(len(self.problems(header | {"src/comm/b.cpp": "namespace lockstep {\nnamespace {\nint Pair;\n}\n}\n"})), 1)
        self.assertEqual(self.problems(header | {"src/comm/b.cpp": "namespace other {\nnamespace {\nint Pair;\n}\n}\n"}), [])

    def test_sources_of_a_test_are_neighbours_and_those_that_are_compiled_apart_are_not(self):
        own = "namespace { int one; }"
        sources = {"tests/a/a_test.cpp": own, "tests/a/b_test.cpp": own}
        self.assertEqual(len(self.problems(sources | {"tests/a/CMakeLists.txt": "lockstep_test(NAME a SOURCES a_test.cpp b_test.cpp)\n"})), 1)
        self.assertEqual(self.problems(sources), [])
        self.assertEqual(self.problems({"src/a/a.cpp": own, "src/a/b.cpp": own,
                                        "src/a/CMakeLists.txt": "lockstep_compile_apart(b.cpp) # why\n"}), [])


class Text(unittest.TestCase):
    def test_each_slip_is_found(self):
        path = pathlib.PurePath("src/numerics/x.h")
        good = LICENCE + "#pragma once\n\nint x();\n"
        self.assertEqual(text.check_file(path, good), [])
        for bad in (good[len(LICENCE) :], good.replace("#pragma once\n", ""), good + "\n", good[:-1] + " \n", "\t" + good,
                    good + "void y() { at::parallel_for(0, 1, 1, z); }\n", good + "#include <ATen/ATen.h>\n"):
            self.assertEqual(len(text.check_file(path, bad)), 1, bad)

    def test_the_page_s_script_and_styles_are_checked_too(self):
        for path, good in ((pathlib.PurePath("src/report/page/a.js"), LICENCE + "const a = 1;\n"),
                           (pathlib.PurePath("src/report/page/a.css"), f"/* {LICENCE[3:-1]} */\na{{color:red}}\n")):
            self.assertTrue(text.is_code(path))
            self.assertEqual(text.check_file(path, good), [])
            for bad in (good.partition("\n")[2], good + "\ta\n", good + "a" * 121 + "\n", good + "a \n"):
                self.assertEqual(len(text.check_file(path, bad)), 1, bad)

    def test_a_name_that_a_source_brings_in_and_never_uses_is_found_with_its_line(self):
        path = pathlib.PurePath("src/numerics/x.cpp")
        used = LICENCE + "using std::size_t;\nnamespace s = std;\nusing A = int;\ns::size_t f(A);\nsize_t g;\n"
        self.assertEqual(text.check_file(path, used), [])
        for line in ("using a::idle;", "  using typename A::idle;", "using idle = a::b<int>;", "namespace idle = a::b;"):
            for mention in ("", "// idle\n", '#include "idle.h"\n', 'auto z = "\\"idle";\n'):
                found = text.check_file(path, used + mention + line + "\n")
                self.assertEqual([problem.rpartition(":")[2] for problem in found], [" idle is never used"], line)
            self.assertIn("src/numerics/x.cpp:7: ", text.check_file(path, used + line + "\n")[0])
            self.assertEqual(text.check_file(path, used + line + "\nidle w;\n"), [])

    def test_a_link_that_leads_nowhere_is_found(self):
        page = "# The `page`, a test\n[a](b.md) [c](b.md#two-words) [d](#the-page-a-test) [e](https://x.y/z) `[f](g.md)`\n"
        with project({"docs/a.md": page, "docs/b.md": "## Two words\n"}) as folder:
            def check(content: str) -> list[str]:
                return text.check_page(pathlib.Path(folder), pathlib.PurePath("docs/a.md"), content)
            self.assertEqual(check(page), [])
            for bad in (page.replace("(b.md)", "(c.md)"), page.replace("two-", "one-"), page.replace("(#the", "(#a")):
                self.assertEqual(len(check(bad)), 1, bad)

    def test_a_file_that_a_page_names_and_that_is_not_there_is_found(self):
        page = "`src/numerics/tree.cpp` `numerics/tree.h` `src/numerics/` `src/numerics/foo.cpp` `torch/nn.h` `runs/demo`\n"
        with project({"src/numerics/tree.cpp": "", "include/lockstep/numerics/tree.h": ""}) as folder:
            def check(name: str, content: str) -> list[str]:
                return text.check_page(pathlib.Path(folder), pathlib.PurePath(name), content)
            self.assertEqual(check("docs/a.md", page), [])
            self.assertEqual(check("CHANGELOG.md", "`src/core/tree.cpp`"), [])
            for bad in ("`src/core/tree.cpp`", "`core/tree.h`", "`src/core/`"):
                self.assertIn("which is not there", check("docs/a.md", bad)[0])

    def test_decisions_are_numbered_and_in_their_index(self):
        index = "[001: A](001-a.md) [002: B](002-b.md)\n"
        good = {"docs/decisions/README.md": index, "docs/decisions/001-a.md": "# 001: A\n", "docs/decisions/002-b.md": "# 002: B\n"}
        for changed, problems in (({}, 0), ({"docs/decisions/002-c.md": "# 002: C\n"}, 2),
                                  ({"docs/decisions/002-b.md": "# 003: B\n"}, 1), ({"docs/decisions/README.md": ""}, 2)):
            with project({**good, **changed}) as folder:
                self.assertEqual(len(text.check_decisions(pathlib.Path(folder))), problems, changed)

    def test_an_example_that_no_page_links_to_is_found(self):
        programs = {"examples/a.cpp": "int main() {}\n", "python/examples/b.py": 'if __name__ == "__main__":\n    pass\n',
                    "examples/part.h": "int f();\n", "python/examples/part.py": "A = 1\n"}
        page = {"docs/use/a.md": "[a](../../examples/a.cpp) [b](../../python/examples/b.py)\n"}
        for contents, problems in (({}, 2), (page, 0), ({"CHANGELOG.md": "[a](examples/a.cpp)\n"}, 2),
                                   ({"README.md": "<!-- file: examples/a.cpp -->\n```cpp\nint main() {}\n```\n"}, 1)):
            with project({**programs, **contents}) as folder:
                self.assertEqual(len(text.check_examples(pathlib.Path(folder))), problems, contents)

    def test_a_page_that_shows_a_file_as_it_no_longer_is_is_found(self):
        page = "<!-- file: a.cpp -->\n```cpp\nint a;\n```\n"
        with project({"a.cpp": LICENCE + "// What it is.\nint a;\n", "page.md": page}) as folder:
            self.assertEqual(text.check_page(pathlib.Path(folder), pathlib.PurePath("page.md"), page), [])
            changed = page.replace("int a", "int b")
            self.assertEqual(len(text.check_page(pathlib.Path(folder), pathlib.PurePath("page.md"), changed)), 1)
            unnamed = page.partition("\n")[2]
            self.assertIn("no file has", text.check_page(pathlib.Path(folder), pathlib.PurePath("page.md"), unnamed)[0])
            gone = page.replace("a.cpp", "b.cpp")
            self.assertEqual(len(text.check_page(pathlib.Path(folder), pathlib.PurePath("page.md"), gone)), 1)


class Options(unittest.TestCase):
    def test_an_option_that_is_on_no_page_and_one_that_no_program_has_are_found(self):
        known = options.options_of(['c.add_option("-n,--processes", x); c.add_flag("--json", y);', 'out.push_back({"lr",\n kRecipe,'])
        self.assertEqual(known, {"--processes", "--json", "--lr"})
        listed = {options.PAGE: "`-n,--processes` `--json` `--lr`\n"}
        self.assertEqual(options.check_pages(known, {**listed, "a.md": "    lockstep train x --lr 1 \\\n      --no-json\n"}), [])
        self.assertEqual(len(options.check_pages(known, {options.PAGE: "`--json` `--lr`\n"})), 1)
        self.assertEqual(len(options.check_pages(known, {**listed, "a.md": "    lockstep train x --lr 1 \\\n      --rate 2\n"})), 1)
        self.assertEqual(options.check_pages(known, {**listed, "docs/a.md": "| `--lr 1` | `--html F` |"}, frozenset({"--html"})), [])
        self.assertEqual(len(options.check_pages(known, {**listed, "docs/a.md": "| `--lr 1` | `--rate 2` |"})), 1)


class Tree(unittest.TestCase):
    def problems(self, contents: dict[str, str]) -> list[str]:
        with project(contents) as folder:
            return tree.check(pathlib.Path(folder))

    def of_folder(self, folder: str, count: int) -> list[str]:
        return self.problems({f"{folder}/f{i}.cpp": LICENCE for i in range(count)})

    def test_a_folder_holds_two_to_fifteen_files(self):
        self.assertEqual(self.of_folder("src/numerics/cpu", 15), [])
        self.assertIn("src/numerics/cpu: 16 files", self.of_folder("src/numerics/cpu", 16)[0])
        self.assertIn("a single file, which could lie in src/numerics", self.of_folder("src/numerics/cpu", 1)[0])

    def test_lists_that_grow_may_be_long(self):
        self.assertEqual(self.of_folder("docs/decisions", 40), [])
        self.assertEqual(len(self.of_folder("docs/pages", 40)), 1)

    def test_a_folder_with_folders_may_hold_one_file(self):
        self.assertEqual(self.problems({f"tests/{name}": "" for name in ("CMakeLists.txt", "a/x.txt", "a/y.txt")}), [])

    def test_a_layer_has_its_folders_however_little_it_holds(self):
        self.assertEqual(self.problems({"include/lockstep/norm/x.h": ""}), [])
        shared = {"include/lockstep/norm/detail/x.h": "", "src/sparse/a.cpp": '#include "lockstep/norm/detail/x.h"\n'}
        self.assertEqual(self.problems({**shared, "src/sparse/b.cpp": ""}), [])

    def test_a_detail_header_is_there_for_another_layer(self):
        header, line = "include/lockstep/norm/detail/x.h", '#include "lockstep/norm/detail/x.h"\n'
        def found(*users: str) -> list[str]:
            contents = {header: LICENCE, **{f"{user}": line for user in users}}
            return tree.check_details({pathlib.PurePath(name): content for name, content in contents.items()})
        for user in ("src/sparse/a.cpp", "include/lockstep/sparse/a.h", "include/lockstep/norm/a.h", "python/src/a.cpp",
                     "include/lockstep/sparse/detail/a.h"):
            self.assertEqual([problem for problem in found(user) if "norm/detail" in problem], [], user)
        for users in ([], ["src/norm/a.cpp"], ["src/norm/a.cpp", "tests/norm/a_test.cpp", "tests/sparse/a_test.cpp"]):
            self.assertIn("belongs to src/norm/", found(*users)[0])

    def test_a_detail_header_that_a_needed_one_includes_is_needed(self):
        contents = {"include/lockstep/norm/detail/x.h": "",
                    "include/lockstep/norm/detail/y.h": '#include "lockstep/norm/detail/x.h"\n'}
        paths = lambda: {pathlib.PurePath(name): content for name, content in contents.items()}  # noqa: E731
        self.assertEqual(len(tree.check_details(paths())), 2)
        contents["src/sparse/a.cpp"] = '#include "lockstep/norm/detail/y.h"\n'
        self.assertEqual(tree.check_details(paths()), [])

    def test_users_see_no_detail_header(self):
        line = "text\n#include <lockstep/norm/detail/x.h>\n"
        for name in ("examples/a.cpp", "docs/a.md", "README.md", "tests/package/outside/main.cpp"):
            found = tree.check_details({pathlib.PurePath(name): line})
            self.assertIn(f"{name}:2: includes lockstep/norm/detail/x.h", found[0])


class Program(unittest.TestCase):
    def test_this_project_keeps_its_own_direction(self):
        self.assertEqual(layers.check(ROOT), [])

    def test_this_project_s_sources_can_be_compiled_together(self):
        self.assertEqual(local_names.check(ROOT), [])

    def test_this_project_keeps_the_shape_of_its_tree(self):
        self.assertEqual(tree.check(ROOT), [])


if __name__ == "__main__":
    unittest.main()

"""That the modules of each Rust crate form no circle: each uses modules that do not use it.

A module is a file of `rust/CRATE/src`; a folder's `mod.rs` is the module of that name, and the crate's root is none. It
uses what its paths `crate::a::b` name, and `super::` beside it. Tests do not count.

    python tools/check_crates.py
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent / "rust"
CRATES = ["ferrax-ffi", "ferrax-compile", "ferrax-x86", "ferrax-cpu", "ferrax-gpu"]

USE = re.compile(r"(?<![\w:])((?:crate|super(?:::super)*)::(?:[\w:]+(?:\{[^;]*?\})?|\{[^;]*?\}))", re.S)


def module_of(path: Path, source: Path) -> str:
    parts = list(path.relative_to(source).with_suffix("").parts)
    return "::".join(parts[:-1] if parts[-1] == "mod" else parts)


def names(path: str) -> list[str]:
    """`a::{b, c::d}` as `a::b` and `a::c::d`; braces within braces too."""
    head, brace, rest = path.partition("{")
    if not brace:
        return [path]
    found, depth, start = [], 0, 0
    rest = rest.rstrip()[:-1]
    for at, char in enumerate(rest + ","):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            found += [head + name for name in names(rest[start:at].strip()) if name]
            start = at + 1
    return found


def without_tests(text: str) -> str:
    text = re.sub(r"//[^\n]*", "", text)
    cut = text.find("#[cfg(test)]\nmod tests {")
    return text if cut < 0 else text[:cut]


def uses(path: Path, source: Path, modules: set[str]) -> set[str]:
    """The modules that a file uses; a folder's own modules are part of it, not used by it."""
    here = module_of(path, source)
    found = set()
    for match in USE.findall(without_tests(path.read_text())):
        for name in names(match):
            parts = name.replace(" ", "").split("::")
            at = here.split("::")
            if parts[0] == "crate":
                parts = parts[1:]
            else:
                while parts and parts[0] == "super":
                    at, parts = at[:-1], parts[1:]
                parts = at + parts
            while parts and "::".join(parts) not in modules:
                parts = parts[:-1]
            used = "::".join(parts)
            if used and used != here and not here.startswith(used + "::") and not used.startswith(here + "::"):
                found.add(used)
    return found


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Strongly connected components of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            component = set(stack[at:])
            del stack[at:]
            if len(component) > 1:
                found.append(component)

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def graph_of(crate: str) -> dict[str, set[str]]:
    source = ROOT / crate / "src"
    paths = [path for path in source.rglob("*.rs") if path.name != "lib.rs" and "tests" not in path.stem]
    modules = {module_of(path, source) for path in paths}
    return {module_of(path, source): uses(path, source, modules) for path in paths}


def main() -> int:
    wrong = 0
    for crate in CRATES:
        graph = graph_of(crate)
        found = {module for circle in circles(graph) for module in circle}
        for module in sorted(found):
            others = ", ".join(sorted(graph[module] & found))
            print(f"{crate}: '{module}' is in a circle of modules; it uses {others}")
            wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

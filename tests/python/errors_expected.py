"""Which cases expect an error: one that ferrax and JAX share is no success unless it is stated.

A test all of whose cases raise says so with the marker `raises("TypeError", …)`, which names every
class that occurs. Tables in which some cases raise have them listed in `errors_expected.txt`:

    test_file.py::test_name
        identifier of the case: Class Class

`record(name)` is called wherever both sides raised; the fixture of `conftest.py` compares what was
recorded in a test with what was stated of it, so a case listed that does not raise fails too, and
one that there is not is an error of collection. With
FERRAX_UPDATE_SNAPSHOTS=1 and one process (`-n 0`) the tests that ran have their lists written anew.
"""

import functools
import pathlib

FILE = pathlib.Path(__file__).with_name("errors_expected.txt")
RAISED: set[str] = set()


def record(name):
    """Notes that both sides raised an error of this class in the test that is running."""
    RAISED.add(name)


@functools.cache
def stated():
    """`{test: {case: classes}}` of the file."""
    found, cases = {}, {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            case, classes = line[4:].rsplit(": ", 1)
            cases[case] = set(classes.split())
        elif line:
            found[line] = cases = {}
    return found


def place(item):
    """`(test, case)` as the file has them."""
    name = f"{item.path.name}::{item.originalname}"
    return name, item.callspec.id if hasattr(item, "callspec") else ""


def without_case(items):
    """What the file states of cases that are not among all those of their modules."""
    cases = set(map(place, items))
    modules = {item.path.name for item in items}
    listed = ((name, case) for name, found in stated().items() for case in found)
    return [
        f"{name}[{case}]"
        for name, case in listed
        if name.partition("::")[0] in modules and (name, case) not in cases
    ]


def check(item, update):
    """Compares what the test raised with what it states; or notes it down."""
    marker = item.get_closest_marker("raises")
    if marker is not None:
        outside = RAISED - set(marker.args)
        assert RAISED and not outside, f"raised {sorted(RAISED) or 'nothing'}, expected {marker.args}"
        return
    name, case = place(item)
    if update:
        listed = stated().setdefault(name, {})
        if RAISED:
            listed[case] = set(RAISED)
        else:
            listed.pop(case, None)
        return
    wanted = stated().get(name, {}).get(case, set())
    assert wanted == RAISED, (
        f"both sides raised {sorted(RAISED) or 'nothing'}, {FILE.name} has {sorted(wanted) or 'nothing'}"
        " for this case: is the error what the case is about?"
    )


def write(lists=None):
    lines = []
    for name, cases in sorted((stated() if lists is None else lists).items()):
        if cases:
            lines.append(name)
            lines += [f"    {case}: {' '.join(sorted(classes))}" for case, classes in cases.items()]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")

"""Profiles: what they record, what JAX reads of their files, and what happens when things go wrong."""

import gzip
import io
import json
import os
import pathlib
import re
import sys
import threading
import time

import jax
import numpy as np
import pytest
from profiles import Found, Mark, Options, options, recorded, run_python, within

import ferrax
import ferrax.numpy as jnp
from ferrax import _core


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


# Marks


def test_marks_nest_and_have_their_values(tmp_path):
    def run():
        with Mark("outer", a=1, b=2.5, c="s", d=True, e=None, f=[1], g=10**30, h=-4) as mark:
            time.sleep(0.002)
            with Mark("inner"):
                time.sleep(0.001)
            mark.set_metadata(late=5)
            assert Mark.is_enabled()

    found = recorded(tmp_path, run)
    outer, inner = found.one("outer"), found.one("inner")
    stats = {"a": 1, "b": 2.5, "c": "s", "d": 1, "e": "None", "f": "[1]", "g": 1e30, "h": -4, "late": 5}
    assert dict(outer.stats) == stats and dict(inner.stats) == {}
    assert within(inner, outer) and 1e6 <= inner.duration_ns < outer.duration_ns - 2e6
    assert not Mark.is_enabled()


def test_names_may_be_any_text(tmp_path):
    def run():
        with Mark("half \ud800", key="\udfff"):
            pass

    [event] = recorded(tmp_path, run).events
    assert event.name.startswith("half ") and list(dict(event.stats)) == ["key"]


def test_steps_are_numbered(tmp_path):
    def run():
        for number in range(3):
            with ferrax.profiler.StepTraceAnnotation("train", step_num=number, note="x"):
                pass

    steps = recorded(tmp_path, run).named("train")
    assert [dict(step.stats) for step in steps] == [{"_r": 1, "step_num": k, "note": "x"} for k in range(3)]
    with pytest.raises(TypeError):
        ferrax.profiler.StepTraceAnnotation("train", _r=2)


def test_functions_are_marked_by_their_names(tmp_path):
    @ferrax.profiler.annotate_function
    def plain(x, *, name):
        return x + len(name)

    class Model:
        @ferrax.profiler.annotate_function
        def method(self):
            return 7

    named = ferrax.profiler.annotate_function(lambda x: x, "given", size=3)

    def run():
        assert (plain(1, name="abc"), Model().method(), named(5)) == (4, 7, 5)

    found = recorded(tmp_path, run)
    assert plain.__name__ == "plain" and found.one(plain.__qualname__) and found.one(Model.method.__qualname__)
    assert dict(found.one("given").stats) == {"size": 3}


def test_marks_that_outlive_a_profile_are_in_none(tmp_path):
    before = Mark("before")
    before.__enter__()
    after = Mark("after")

    def run():
        before.__exit__(None, None, None)
        after.__enter__()

    found = recorded(tmp_path, run)
    after.__exit__(None, None, None)
    again = recorded(tmp_path, lambda: None)
    assert not {"before", "after"} & {event.name for event in found.events + again.events}


@pytest.mark.parametrize("make", [
    lambda P: P.TraceAnnotation(), lambda P: P.TraceAnnotation(3), lambda P: P.TraceAnnotation("a", "b"),
    lambda P: P.TraceAnnotation(name="a"), lambda P: P.ProfileEvent(), lambda P: P.ProfilePlane(),
    lambda P: P.ProfileData("x"), lambda P: P.ProfileData(), lambda P: P.ProfileData(b"\xff"),
    lambda P: P.ProfileData.from_file(3), lambda P: P.ProfileData.from_file(pathlib.Path("x")),
    lambda P: P.ProfileData.from_file("/nowhere/at all"), lambda P: P.ProfileData.from_text_proto(3),
    lambda P: P.ProfileData.from_serialized_xspace(b"\x0a\x05ab"),
    lambda P: P.ProfileData(b"").find_plane_with_name(3), lambda P: P.stop_trace(), lambda P: P.stop_server(),
    lambda P: P.start_server("a"), lambda P: P.annotate_function(3), lambda P: P.device_memory_profile("nowhere"),
    lambda P: setattr(P.ProfileOptions(), "host_tracer_level", "a"),
    lambda P: setattr(P.ProfileOptions(), "host_tracer_level", -1),
    lambda P: setattr(P.ProfileOptions(), "python_tracer_level", 2.0),
    lambda P: setattr(P.ProfileOptions(), "duration_ms", -5),
    lambda P: setattr(P.ProfileOptions(), "repository_path", 3),
    lambda P: setattr(P.ProfileOptions(), "enable_hlo_proto", 0),
    lambda P: setattr(P.ProfileOptions(), "advanced_configuration", 3),
])  # fmt: skip
def test_errors_are_those_of_jax(make):
    def error(profiler):
        with pytest.raises(Exception) as caught:  # noqa: PT011  which one is compared
            make(profiler)
        return caught.type

    ours, theirs = error(ferrax.profiler), error(jax.profiler)
    assert ours.__name__ == theirs.__name__


def test_options_are_those_of_jax():
    ours, theirs = Options(), jax.profiler.ProfileOptions()
    names = [name for name in dir(theirs) if not name.startswith("_")]
    assert {name: getattr(ours, name) for name in names} == {name: getattr(theirs, name) for name in names}
    given = {"tpu_trace_mode": "TRACE_COMPUTE", "tpu_num_sparse_cores_to_trace": 1, "enableFwThrottleEvent": True}
    ours.advanced_configuration = given
    assert ours.advanced_configuration == given
    with pytest.raises(AttributeError):
        ours.host_tracer_leval = 3


# What runs


def test_kernels_have_names_and_lines(tmp_path):
    @ferrax.jit
    def f(x):
        y = jnp.sort(x)
        return jnp.tanh(y) * 2 + 1  # the line

    x = jnp.ones((64, 64))
    # Compiled before: the names are there all the same.
    f(x)
    found = recorded(tmp_path, lambda: f(x).block_until_ready())
    call = found.one("PjitFunction(f)")
    # Rows may be gone through a part at a time, and shared with helpers.
    shares = found.of_kind("share")
    first, rest = (
        next(event for event in found.named(name) if event not in shares) for name in ("sort", "tanh_mul_add")
    )
    assert within(first, call) and within(rest, call) and first.end_ns <= rest.start_ns + 1
    source = pathlib.Path(__file__).read_text().split("\n")

    def line(event):
        path, number, function = re.fullmatch(r"(.*):(\d+) \((.+)\)", dict(event.stats)["source"]).groups()
        assert path == __file__
        return source[int(number) - 1].strip(), function

    assert line(first) == ("y = jnp.sort(x)", "f")
    assert line(rest) == ("return jnp.tanh(y) * 2 + 1  # the line", "f")
    assert line(call)[0].startswith("found = recorded(")
    assert [dict(event.stats)["kind"] for event in (call, first, rest)] == ["call", "library", "kernel"]


def test_compiling_has_phases(tmp_path):
    def fresh(x):
        return ferrax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x)

    found = recorded(tmp_path, lambda: ferrax.jit(fresh)(jnp.arange(3.0)))
    trace, made, call = found.one("trace fresh"), found.one("compile fresh"), found.one("PjitFunction(fresh)")
    assert within(trace, call) and within(made, call) and trace.end_ns <= made.start_ns + 1
    phases = [event for event in found.of_kind("compile") if within(event, made) and event.name != made.name]
    assert {event.name for event in phases} == {"optimise", "plan", "bind"}
    # The branches' plans are made while the program is bound.
    assert sum(event.name == "plan" for event in phases) == 3


def test_ops_that_run_at_once_are_calls(tmp_path):
    x = jnp.arange(6.0)

    def run():
        jnp.cumsum(x + 1)

    calls = {event.name for event in recorded(tmp_path, run).of_kind("call")}
    assert "add" in calls and any("cumsum" in name for name in calls)


@pytest.mark.parametrize("level, inside", [(2, False), (3, True)])
def test_levels_say_whether_loops_are_looked_into(tmp_path, level, inside):
    @ferrax.jit
    def loop(x):
        return ferrax.lax.fori_loop(0, 7, lambda i, x: jnp.tanh(jnp.sort(x)), x)

    x = jnp.ones((40, 40))
    found = recorded(tmp_path, lambda: loop(x), options(host=level))
    # Each step sorts once, or a part at a time.
    assert len(found.named("sort")) >= 7 if inside else not found.named("sort")
    assert len(found.of_kind("library")) >= 8 if inside else len(found.of_kind("library")) == 1
    assert not recorded(tmp_path, lambda: loop(x), options(host=1)).events
    assert not recorded(tmp_path, lambda: Mark("a").__enter__().__exit__(), options(host=0)).events


def test_transfers_allocations_and_callbacks(tmp_path):
    host = np.ones((600, 600), np.float32)

    def doubled(x):
        return 2 * np.asarray(x)

    @ferrax.jit
    def f(x):
        return ferrax.pure_callback(doubled, x, x) + 1

    found = recorded(tmp_path, lambda: f(jnp.asarray(host)).block_until_ready())
    assert dict(found.named("copy from NumPy")[0].stats) == {"kind": "transfer", "bytes": host.nbytes}
    assert host.nbytes in {dict(event.stats)["bytes"] for event in found.named("allocate")}
    [callback] = found.of_kind("callback")
    assert within(callback, found.one("PjitFunction(f)"))


def test_threads_have_lines(tmp_path):
    def work(number):
        with Mark(f"mark {number}"):
            jnp.arange(3.0) + 1

    def run():
        threads = [threading.Thread(target=work, args=(k,), name=f"worker {k}") for k in range(3)]
        for thread in threads:
            thread.start()
        work("main")
        for thread in threads:
            thread.join()

    # Names of threads that have ended are known where their functions were seen.
    found = recorded(tmp_path, run, options(python=1))
    marks = {name: [e.name for e in events if "mark" in e.name] for name, events in found.lines.items()}
    assert {name: marks[name] for name in ("MainThread", "worker 0", "worker 1", "worker 2")} == {
        "MainThread": ["mark main"], **{f"worker {k}": [f"mark {k}"] for k in range(3)}
    }  # fmt: skip
    assert len(recorded(tmp_path, run).lines) == 4


def test_helpers_of_the_pool_show_what_they_share(tmp_path):
    x = jnp.ones((2000, 2000))
    f = ferrax.jit(lambda x: jnp.exp(jnp.sin(x)))
    f(x)
    before = _core.num_threads()
    _core.set_num_threads(2, True)
    try:
        found = recorded(tmp_path, lambda: [f(x).block_until_ready() for _ in range(20)])
    finally:
        _core.set_num_threads(before, True)
    shares = found.of_kind("share")
    kernels = found.named("sin_exp")
    on_helpers = [event for name, events in found.lines.items() if name.startswith("ferrax-") for event in events]
    assert shares and {event.name for event in shares} == {"sin_exp"}
    assert len(on_helpers) == len(shares) and len(kernels) == 20 + len(shares)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_python_functions(tmp_path, level):
    def slow():
        spin(0.02)
        return quick()

    def quick():
        return json.dumps({})

    def failing():
        spin(0.02)
        raise KeyError

    def numbers():
        yield spin(0.02)
        yield 2

    def run():
        slow()
        with pytest.raises(KeyError):
            failing()
        list(numbers())

    found = recorded(tmp_path, run, options(python=level, ferrax_python_min_us=10_000))
    functions = {re.sub(r"^\$(.*):\d+ (\w+)$", r"\1 \2", name) for name in (e.name for e in found.events) if name[0] == "$"}
    own = pathlib.Path(__file__).name
    if not level:
        assert not functions
        return
    assert {f"{own} {name}" for name in ("slow", "failing", "numbers", "spin", "run")} <= functions
    # What is short, or the standard library's.
    assert (f"{own} quick" in functions) == (level == 2)
    assert ("__init__.py dumps" in functions) == (level == 2)
    slow_ones = [event for event in found.events if event.name.endswith(" slow")]
    inner = [event for event in found.events if event.name.endswith(" spin")]
    assert any(within(event, slow_ones[0]) for event in inner)
    assert sys.getprofile() is None


def test_another_profiler_is_left_alone(tmp_path):
    if hasattr(sys, "monitoring"):
        numbers = (2, 3, 4)
        for number in numbers:
            sys.monitoring.use_tool_id(number, "other")
        free = lambda: [sys.monitoring.free_tool_id(number) for number in numbers]  # noqa: E731
    else:
        other = lambda *_: None  # noqa: E731
        sys.setprofile(other)
        free = lambda: sys.setprofile(None)  # noqa: E731
    try:
        with pytest.warns(RuntimeWarning, match="another profiler"):
            recorded(tmp_path, lambda: spin(0.001), options(python=1))
        assert hasattr(sys, "monitoring") or sys.getprofile() is other
    finally:
        free()


# When


def test_events_are_kept_from_a_time_on_for_a_time(tmp_path):
    chosen = options()
    chosen.start_timestamp_ns = time.time_ns() + 100_000_000
    chosen.duration_ms = 300

    def run():
        for number in range(60):
            with Mark("mark", number=number):
                time.sleep(0.01)

    numbers = [dict(event.stats)["number"] for event in recorded(tmp_path, run, chosen).named("mark")]
    assert numbers and numbers[0] > 0 and numbers[-1] < 59
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


def test_the_oldest_events_are_dropped_and_counted(tmp_path):
    def run():
        for number in range(1000):
            with Mark("mark", number=number):
                pass

    with pytest.warns(RuntimeWarning, match="no room for 950 events"):
        found = recorded(tmp_path, run, options(ferrax_max_events_per_thread=50))
    assert found.stats["dropped_events"] == 950
    assert [dict(event.stats)["number"] for event in found.events] == list(range(950, 1000))
    out = io.StringIO()
    ferrax.profiler.report(tmp_path, file=out)
    assert "950 events are missing" in out.getvalue()


# Files


def test_files_are_where_jax_has_them_and_agree(tmp_path):
    chosen = options(python=1)
    chosen.session_id = "mine"
    x = jnp.arange(3.0)
    ferrax.profiler.start_trace(tmp_path, create_perfetto_trace=True, profiler_options=chosen)
    with Mark('"quoted" </script>\n', text="ünï"):
        ferrax.jit(jnp.sin)(x)
    ferrax.profiler.stop_trace()
    folder = tmp_path / "plugins" / "profile" / "mine"
    host = Found(tmp_path)
    assert host.path.parent == folder and len(list(folder.iterdir())) == 3
    traces = [json.loads(gzip.decompress(path.read_bytes())) for path in sorted(folder.glob("*.json.gz"))]
    assert sorted(map(sorted, traces)) == [["displayTimeUnit", "metadata", "traceEvents"], ["displayTimeUnit", "traceEvents"]]
    ours = ferrax.profiler.ProfileData.from_file(str(host.path))
    for trace in traces:
        times = sorted((e["name"], round(1000 * e["ts"]), round(1000 * e["dur"])) for e in trace["traceEvents"] if e["ph"] == "X")
        assert times == sorted((e.name, e.start_ns, e.duration_ns) for e in host.events)
    assert described(ours) == described(host.data)
    metadata = dict(ours.find_plane_with_name("/host:metadata").stats)
    assert metadata["process_id"] == os.getpid()
    clock = dict(ours.find_plane_with_name("Task Environment").stats)
    assert clock["profile_start_time"] <= clock["profile_stop_time"] <= time.time_ns()


def described(data):
    """All of a profile."""
    def of(event):
        return event.name, event.start_ns, event.duration_ns, event.end_ns, list(event.stats)

    return [(p.name, list(p.stats), [(x.name, [of(e) for e in x.events]) for x in p.lines]) for p in data.planes]


TEXTS = [
    """planes { id: 2 name: "/host:CPU"  # a comment
         lines { id: 7 name: 'python' timestamp_ns: 1000
           events { metadata_id: 1 offset_ps: 5500 duration_ps: 2500
             stats { metadata_id: 1 int64_value: -3 } stats { metadata_id: 2 str_value: "hi\\n\\x41\\101" "!" }
             stats { metadata_id: 3 double_value: 1.5 } stats { metadata_id: 1 uint64_value: 18446744073709551615 }
             stats { metadata_id: 2 ref_value: 3 } stats { metadata_id: 9 int64_value: 6 } stats { metadata_id: 3 bytes_value: "ab" } }
           events { metadata_id: 77 num_occurrences: 4 } }
         event_metadata { key: 1 value { id: 1 name: "ev" display_name: "shown" } }
         stat_metadata { key: 1 value { id: 1 name: "s1" } } stat_metadata { key: 2 value { id: 2 name: "s2" } }
         stat_metadata { key: 3 value { id: 3 name: "s3" description: "d" } }
         stats { metadata_id: 1 int64_value: 7 } }
       hostnames: "h" """,
    "", 'planes: < name: "a", id: 0x1F; >', 'planes [ {name:"x"}, {name:"y"} ]', 'hostnames: ["a", "b"] errors: "e"',
    "planes { stats { double_value: -inf } stats { double_value: -1e5f } stats { double_value: 3 } }", "planes { id: 010 }",
    'planes { lines { events { offset_ps: -5 } display_name: "x" duration_ps: 5 display_id: 2 } }',
    'planes { event_metadata { key: 3 value { metadata: "m" stats { metadata_id: 1 } child_id: 4 } } }',
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_read_as_jax_reads_it(text):
    ours, theirs = ferrax.profiler.ProfileData, jax.profiler.ProfileData
    data = ours.text_proto_to_serialized_xspace(text)
    written = theirs.text_proto_to_serialized_xspace(text)
    # JAX's tables of several names are in no order.
    assert data == written if text.count("stat_metadata") < 2 else sorted(data) == sorted(written)
    assert described(ours(data)) == described(theirs(data))
    assert described(ours.from_text_proto(text)) == described(theirs.from_text_proto(text))


@pytest.mark.parametrize("text", [
    "bogus { }", "planes { name: 3 }", "planes {", "planes { id: 99999999999999999999 }", "planes { id: 1 id: 2 }", "planes { id: 08 }",
    "planes { lines { events { offset_ps: 5 num_occurrences: 3 } } }", "planes { name 'x' }", "planes { stats { uint64_value: -1 } }", "planes { ? }",
    'planes { name: "a', "planes { lines { events { offset_ps: 1.5 } } }", "hostnames: ['a' 3]",
])  # fmt: skip
def test_text_that_describes_nothing_is_an_error(text):
    with pytest.raises(ValueError, match=r"line 2 of the text of a profile"):
        ferrax.profiler.ProfileData.from_text_proto("\n" + text)


def test_bytes_that_are_cut_are_errors_or_profiles():
    whole = ferrax.profiler.ProfileData.text_proto_to_serialized_xspace(TEXTS[0])
    for end in range(len(whole)):
        try:
            list(ferrax.profiler.ProfileData(whole[:end]).planes)
        except RuntimeError:
            continue
        assert end == 0 or whole[end:].startswith(b'"\x01h')
    with pytest.raises(NotImplementedError):
        ferrax.profiler.ProfileData.from_raw_cpp_ptr(None)


# What goes wrong


def test_a_body_that_raises_is_written(tmp_path):
    with pytest.raises(KeyError), ferrax.profiler.trace(tmp_path), Mark("seen"):
        raise KeyError
    assert Found(tmp_path).one("seen")


def test_folders_that_cannot_be_written_to_are_errors_at_the_start(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", "/proc/nowhere"):
        with pytest.raises(ferrax.errors.JaxRuntimeError, match="cannot be written to"):
            ferrax.profiler.start_trace(folder)
        assert not Mark.is_enabled()
    with pytest.raises(RuntimeError):
        ferrax.profiler.stop_trace()


def test_there_is_one_profile_at_a_time(tmp_path):
    with ferrax.profiler.trace(tmp_path / "first"), pytest.raises(RuntimeError, match="one at a time"):
        ferrax.profiler.start_trace(tmp_path / "second")
    assert not (tmp_path / "second").exists() and Found(tmp_path / "first")
    for _ in range(2):
        recorded(tmp_path, lambda: None)
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 3


def test_options_without_meaning_are_refused(tmp_path):
    for name, value, error in [
        ("repository_path", "x", NotImplementedError), ("session_id", "a/b", ValueError),
        ("advanced_configuration", {"unknown": 1}, ValueError),
        ("advanced_configuration", {"ferrax_max_events_per_thread": 0}, ValueError),
    ]:  # fmt: skip
        chosen = Options()
        setattr(chosen, name, value)
        with pytest.raises(error):
            ferrax.profiler.start_trace(tmp_path / "x", profiler_options=chosen)
    with pytest.raises(TypeError):
        ferrax.profiler.start_trace(tmp_path / "x", profiler_options=3)
    assert not (tmp_path / "x").exists()


def test_there_are_no_profiles_for_compilers(tmp_path):
    with pytest.raises(RuntimeError):
        ferrax.profiler.stop_and_get_fdo_profile()
    ferrax.profiler.start_trace(tmp_path / "x")
    with pytest.raises(NotImplementedError):
        ferrax.profiler.stop_and_get_fdo_profile()
    assert not Mark.is_enabled() and not (tmp_path / "x" / "plugins").exists()

def test_a_forked_child_has_no_profile_and_may_take_one(tmp_path):
    run_python(
        """
        import os, sys, threading
        import ferrax, ferrax.numpy as jnp
        mark, folder = ferrax.profiler.TraceAnnotation, sys.argv[1]
        f = ferrax.jit(lambda x: jnp.sin(x) + 1)
        x = jnp.ones(100)
        stop = threading.Event()
        def busy():
            while not stop.is_set():
                with mark("busy"):
                    f(x)
        thread = threading.Thread(target=busy)
        ferrax.profiler.start_trace(folder + "/parent")
        thread.start()
        for number in range(10):
            child = os.fork()
            if not child:
                assert not mark.is_enabled()
                with mark("no"):
                    f(x)
                if number == 9:
                    with ferrax.profiler.trace(folder + "/child"), mark("in child"):
                        f(x)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        thread.join()
        with mark("in parent"):
            f(x)
        ferrax.profiler.stop_trace()
        """,
        tmp_path,
    )
    parent, child = Found(tmp_path / "parent"), Found(tmp_path / "child")
    assert parent.one("in parent") and parent.named("busy") and not parent.named("no") and not parent.named("in child")
    assert child.one("in child") and not child.named("busy") and child.of_kind("call")

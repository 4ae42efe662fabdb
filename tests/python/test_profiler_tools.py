"""Memory profiles, the server, other processes, and reports of profiles."""

import gzip
import io
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
import warnings
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from profiles import Found, Mark, options, recorded, run_python, within

import ferrax
import ferrax.numpy as jnp
from ferrax._src.profiling import chrome, recorder, space, wire

# Memory


def messages(data):
    """The fields of a message of protocol buffers by number."""
    found, at = {}, 0

    def integer():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = integer()
        if key & 7 == 0:
            value = integer()
        else:
            assert key & 7 == 2
            size = integer()
            value = data[at : at + size]
            at += size
        found.setdefault(key >> 3, []).append(value)
    return found


def unpacked(data):
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            value = shift = 0
    return values


def memory(packed):
    """The samples of a profile of memory: what they are of, labels, counts and bytes."""
    profile = messages(gzip.decompress(packed))
    texts = [text.decode() for text in profile[6]]
    assert texts[0] == ""
    units = [tuple(texts[number] for [number] in messages(unit).values()) for unit in profile[1]]
    assert units == [("allocations", "count"), ("space", "bytes")]
    functions = {messages(f)[1][0]: messages(f) for f in profile[5]}
    places = {messages(p)[1][0]: messages(messages(p)[4][0]) for p in profile[4]}
    found = {}
    for sample in map(messages, profile[2]):
        [place], (count, size) = unpacked(sample[1][0]), unpacked(sample[2][0])
        labels = {texts[messages(x)[1][0]]: texts[messages(x)[2][0]] for x in sample[3]}
        function = functions[places[place][1][0]]
        found[texts[function[2][0]], labels["kind"], labels["device"], texts[function[4][0]]] = count, size
    return found


def test_memory_profiles_have_arrays_and_executables(tmp_path):
    constant = np.ones(1_000_000, np.float32)

    def keeps_a_constant(x):
        return x + jnp.asarray(constant)

    f = ferrax.jit(keeps_a_constant)
    arrays = [jnp.zeros((37, 41)) for _ in range(3)]
    f(jnp.float32(1))
    ferrax.profiler.save_device_memory_profile(tmp_path / "x.prof")
    found = memory((tmp_path / "x.prof").read_bytes())
    assert found["float32[37,41]", "buffer", "cpu:0", ""] == (3, 3 * 37 * 41 * 4)
    count, size = found["keeps_a_constant", "executable", "cpu:0", __file__]
    assert count == 1 and 0 < size < 100_000
    # What a function captures is an array.
    assert found["float32[1000000]", "buffer", "cpu:0", ""] == (1, constant.nbytes)
    del arrays
    assert ("float32[37,41]", "buffer", "cpu:0", "") not in memory(ferrax.profiler.device_memory_profile("cpu"))


# Others


@pytest.fixture
def server():
    server = ferrax.profiler.start_server(0)
    yield server
    ferrax.profiler.stop_server()


def get(server, path, body=None):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", body, timeout=60) as answer:
        return answer.read()


def test_a_server_hands_out_profiles(server):
    stop = threading.Event()

    def work():
        while not stop.is_set():
            with Mark("at work"):
                time.sleep(0.001)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        trace = json.loads(gzip.decompress(get(server, "/profile?duration_ms=60&python_tracer_level=0")))
        data = jax.profiler.ProfileData(get(server, "/xplane?duration_ms=60"))
    finally:
        stop.set()
        thread.join()
    assert any(event["name"] == "at work" for event in trace["traceEvents"])
    assert any(e.name == "at work" for line in data.find_plane_with_name("/host:CPU").lines for e in line.events)
    assert memory(get(server, "/memory"))
    assert json.loads(get(server, "/"))["process_id"] == os.getpid()
    for path, body, status in [
        ("/nowhere", None, 404), ("/profile?duration_ms=x", None, 400), ("/profile?unknown=1", None, 400),
        ("/profile?duration_ms=9999999", None, 400), ("/end", b"", 409), ("/begin", b"[]", 400), ("/begin", b"{", 400),
    ]:  # fmt: skip
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(server, path, body)
        assert refused.value.code == status and json.loads(refused.value.read())["error"]
    with pytest.raises(ValueError, match="one at a time"):
        ferrax.profiler.start_server(0)


def test_a_server_and_a_profile_of_ones_own_do_not_mix(server, tmp_path):
    with ferrax.profiler.trace(tmp_path), pytest.raises(urllib.error.HTTPError) as refused:
        get(server, "/profile?duration_ms=1")
    assert refused.value.code == 409
    get(server, "/begin", b"{}")
    with pytest.raises(RuntimeError):
        ferrax.profiler.start_trace(tmp_path)
    get(server, "/end", b"")
    assert recorded(tmp_path, lambda: None)


def test_ports_that_cannot_be(server):
    for port, error in [(-1, ValueError), (70_000, ValueError), ("1", TypeError)]:
        with pytest.raises(error):
            ferrax.profiler.start_server(port)
    taken = server.port
    ferrax.profiler.stop_server()
    other = listening(taken)
    try:
        with pytest.raises(ferrax.errors.JaxRuntimeError, match="cannot listen"):
            ferrax.profiler.start_server(taken)
    finally:
        other.close()
        ferrax.profiler.start_server(0)


def listening(port):
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("127.0.0.1", port))
    taken.listen()
    return taken


def test_another_process_takes_part(tmp_path):
    code = """
        import time
        import ferrax
        print(ferrax.profiler.start_server(0).port, flush=True)
        while True:
            with ferrax.profiler.TraceAnnotation("in the other"):
                time.sleep(0.005)
    """
    other = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    try:
        port = int(other.stdout.readline())
        end = ferrax.profiler.register_subprocess(other.pid, port)
        with pytest.raises(RuntimeError, match="already"):
            ferrax.profiler.register_subprocess(other.pid, port)

        def run():
            with Mark("in this"):
                time.sleep(0.1)

        found = recorded(tmp_path, run, options(profile_subprocesses=True))
        plane = found.data.find_plane_with_name(f"/host:CPU [{other.pid}]")
        own = found.one("in this")
        theirs = [event for line in plane.lines for event in line.events if event.name == "in the other"]
        # One clock: what the other did lies around what was done here.
        assert theirs and any(within(event, own) for event in theirs)
        other.kill()
        other.wait()
        with pytest.warns(RuntimeWarning, match="without the process"):
            recorded(tmp_path, run, options(profile_subprocesses=True))
        end()
        with pytest.raises(ferrax.errors.JaxRuntimeError, match="no profiler server"):
            ferrax.profiler.register_subprocess(other.pid, port)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            recorded(tmp_path, run, options(profile_subprocesses=True))
    finally:
        other.kill()
        other.wait()
        other.stdout.close()


def test_perfetto_is_handed_the_file_once(tmp_path, capsys):
    path = tmp_path / "perfetto_trace.json.gz"
    path.write_bytes(b"content")
    free = listening(0)
    port = free.getsockname()[1]
    free.close()
    thread = threading.Thread(target=chrome.serve_once, args=(str(path), port))
    thread.start()
    answers, until = [], time.monotonic() + 60
    while len(answers) < 2 and time.monotonic() < until:
        for name in ("other", path.name):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=5) as answer:
                    answers.append((answer.read(), answer.headers["Access-Control-Allow-Origin"]))
            except urllib.error.HTTPError as error:
                answers.append(error.code)
            except OSError:
                time.sleep(0.05)
                break
    thread.join(10)
    assert answers == [404, (b"content", "https://ui.perfetto.dev")] and not thread.is_alive()
    assert f"https://ui.perfetto.dev/#!/?url=http://127.0.0.1:{port}/{path.name}" in capsys.readouterr().out


# Reports


def test_reports_name_kernels_calls_and_lines(tmp_path):
    @ferrax.jit
    def f(x):
        return jnp.sum(jnp.tanh(x @ x), axis=0) + 1

    x = jnp.ones((128, 128))
    recorded(tmp_path / "a", lambda: [f(x) for _ in range(5)])
    out = io.StringIO()
    page = ferrax.profiler.report(file=out)
    lines = out.getvalue().splitlines()
    [product] = [line for line in lines if "dot_general" in line]
    assert re.search(rf"\s5\s+[\d.]+\s+dot_general  {re.escape(__file__)}:\d+ \(f\)$", product)
    assert any(line.endswith("ms in kernels") for line in lines) and any("compiling" in line for line in lines)
    # The parts are the whole.
    parts = [float(line.split()[1].rstrip("%")) for line in lines if re.match(r"\s+[\d.]+\s+[\d.]+%", line)]
    assert abs(sum(parts) - 100) < 0.1 * len(parts)
    assert pathlib.Path(page) == Found(tmp_path / "a").path.parent / "report.html"
    again = io.StringIO()
    data = ferrax.profiler.ProfileData.from_file(str(Found(tmp_path).path))
    assert ferrax.profiler.report(data, file=again) is None and again.getvalue() == out.getvalue()
    short = io.StringIO()
    ferrax.profiler.report(tmp_path / "a", top=1, html=tmp_path / "x.html", file=short)
    assert " more\n" in short.getvalue() and (tmp_path / "x.html").exists()


def test_pages_are_one_file_with_all_events(tmp_path):
    def run():
        with Mark("</script><b>"), Mark("inner", value="<i>"):
            pass

    found = recorded(tmp_path, run)
    page = pathlib.Path(ferrax.profiler.report(tmp_path, file=io.StringIO())).read_text(encoding="utf-8")
    assert page.count("</script>") == 2 and not re.search(r"(src|href)=|https?://|@import", page)
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1])
    events = [(data["shown"][n][0], depth, begin, long) for row in data["rows"] for begin, long, depth, n in row["events"]]
    assert [(name, depth) for name, depth, *_ in events] == [("</script><b>", 0), ("inner", 1)]
    times = [1000 * time for event in events for time in event[2:]]
    in_order = sorted(found.events, key=lambda event: event.start_ns)
    assert times == pytest.approx([time for event in in_order for time in (event.start_ns, event.duration_ns)], abs=1)
    assert "value: <i>" in data["shown"][events and 1][2]


def test_own_times_leave_out_what_is_within(tmp_path):
    text = """planes { name: "/host:CPU"
      lines { name: "a"
        events { metadata_id: 1 offset_ps: 0 duration_ps: 10000000000 stats { metadata_id: 1 str_value: "library" } }
        events { metadata_id: 2 offset_ps: 1000000000 duration_ps: 4000000000 stats { metadata_id: 1 str_value: "kernel" }
          stats { metadata_id: 2 str_value: "x.py:3 (f)" } }
        events { metadata_id: 2 offset_ps: 6000000000 duration_ps: 2000000000 stats { metadata_id: 1 str_value: "kernel" }
          stats { metadata_id: 2 str_value: "x.py:3 (f)" } } }
      lines { name: "ferrax-1"
        events { metadata_id: 2 offset_ps: 0 duration_ps: 9000000000 stats { metadata_id: 1 str_value: "share" } } }
      event_metadata { key: 1 value { id: 1 name: "while" } } event_metadata { key: 2 value { id: 2 name: "tanh" } }
      stat_metadata { key: 1 value { id: 1 name: "kind" } } stat_metadata { key: 2 value { id: 2 name: "source" } } }"""
    out = io.StringIO()
    ferrax.profiler.report(ferrax.profiler.ProfileData.from_text_proto(text), file=out)
    rows = [line.split() for line in out.getvalue().splitlines()]
    assert rows[1] == ["6.000", "60.0%", "2", "3000.00", "tanh", "x.py:3", "(f)"]
    assert rows[2] == ["4.000", "40.0%", "1", "4000.00", "while"]


def test_reports_of_nothing(tmp_path):
    with pytest.raises(FileNotFoundError):
        ferrax.profiler.report(tmp_path)
    with pytest.raises(TypeError):
        ferrax.profiler.report(3)
    with pytest.raises(ValueError, match="top"):
        ferrax.profiler.report(tmp_path, top=0)
    (tmp_path / "bad.xplane.pb").write_bytes(b"\xff")
    with pytest.raises(RuntimeError):
        ferrax.profiler.report(tmp_path)
    assert run_python(
        """
        import ferrax
        try:
            ferrax.profiler.report()
        except ValueError as error:
            print("ValueError")
        """
    ) == "ValueError\n"


@pytest.mark.parametrize("value", [0, 1, 127, 128, 1 << 35, (1 << 63) - 1, -1, -(1 << 63)])
def test_integers_survive(value):
    [(field, got)] = wire.fields(wire.number(3, value))
    assert (field, wire.signed(got)) == (3, value)
    assert struct.pack("<d", wire.as_double(struct.unpack("<Q", struct.pack("<d", 0.1))[0])) == struct.pack("<d", 0.1)


def test_the_clock_of_a_gpu_begins_with_its_first_call():
    device = SimpleNamespace(id=1, _number=3)
    call, other = space.Shown("run on device 3"), space.Shown("run on device 4")
    lines = [space.Line(1, "main", [space.Event(other, 5, 1), space.Event(call, 70_000, 9), space.Event(call, 90_000, 9)])]
    events = [("late", 20.0, 30.5, False), ("first", 0.0, 10.0, False), ("copy", 4.0, 5.0, True)]
    plane = recorder._gpu_plane(recorder._Gpu(device, "run on device 3"), events, lines)
    assert plane.name == "/device:GPU:1" and [line.name for line in plane.lines] == ["kernels", "library calls on the host"]
    times = [[(event.shown.name, event.offset, event.duration) for event in line.events] for line in plane.lines]
    assert times == [[("first", 70_000, 10_000), ("late", 90_000, 10_500)], [("copy", 4000, 1000)]]

"""What tests of profiles share: taking one, and what JAX reads of its files."""

import pathlib
import subprocess
import sys
import textwrap

import jax

import ferrax

Options = ferrax.profiler.ProfileOptions
Mark = ferrax.profiler.TraceAnnotation


def options(host=2, python=0, **advanced):
    made = Options()
    made.host_tracer_level, made.python_tracer_level = host, python
    made.advanced_configuration = advanced
    return made


class Found:
    """The profile that was written last to a folder, as JAX reads it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        [*_, self.path] = sorted(
            self.folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime
        )
        self.data = jax.profiler.ProfileData.from_file(str(self.path))
        host = self.data.find_plane_with_name("/host:CPU")
        self.lines = {line.name: list(line.events) for line in host.lines}
        self.stats = dict(host.stats)
        self.events = [event for events in self.lines.values() for event in events]

    def named(self, name):
        return [event for event in self.events if event.name == name]

    def one(self, name):
        [event] = self.named(name)
        return event

    def of_kind(self, *kinds):
        return [event for event in self.events if dict(event.stats).get("kind") in kinds]


def recorded(folder, run, chosen=None):
    with ferrax.profiler.trace(folder, profiler_options=options() if chosen is None else chosen):
        run()
    return Found(folder)


def within(inner, outer):
    return outer.start_ns <= inner.start_ns and inner.end_ns <= outer.end_ns


def run_python(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

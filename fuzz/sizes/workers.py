"""Processes that run programs and may crash or hang, which is an answer like others."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

import psutil

from .parts import DEVICES
from .program import Program

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVED = 150  # programs, after which a process is replaced
IDLE = 0.01  # seconds of work below which a process does nothing
# In these the library works; if the reference takes long nothing is wrong.
JUDGING = ("reference", "differences")
FINE = ("ok", "unsure", "slow reference")


class Worker:
    """One process at a time, started when it is first asked. `threads`: for how many work is cut in it."""

    def __init__(self, threads: int, module: str):
        self.threads, self.module = threads, module
        self.process: subprocess.Popen | None = None
        self.served = 0
        self.buffer = b""
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115

    def start(self) -> None:
        self.stop()
        environment = os.environ | {
            "FERRAX_NUM_THREADS": str(self.threads), "OPENBLAS_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1",
            "FERRAX_COMPILATION_CACHE_DIR": "", "JAX_ENABLE_COMPILATION_CACHE": "false",
            "FERRAX_NUM_CPU_DEVICES": str(DEVICES),
        }  # fmt: skip
        self.errors.seek(0)
        self.errors.truncate()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.sizes", "--serve", "--module", self.module], cwd=ROOT, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)  # fmt: skip
        self.served, self.buffer = 0, b""

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None

    def worked(self) -> float:
        """Seconds of processors that it has used: other processes do not count against it."""
        try:
            times = psutil.Process(self.process.pid).cpu_times()
        except psutil.Error:  # it has ended, which its output tells
            return math.inf
        return times.user + times.system

    def line(self, limit: float) -> bytes | None:
        """The next line; empty if it ended, None if it works for so many seconds or does nothing in them."""
        stream = self.process.stdout.fileno()
        begin = seen = self.worked()
        since = time.monotonic()
        while b"\n" not in self.buffer:
            if not select.select([stream], [], [], min(1.0, limit / 4))[0]:
                now = self.worked()
                if now > seen + IDLE:
                    seen, since = now, time.monotonic()
                if now > begin + limit or time.monotonic() > since + limit:
                    return None
                continue
            more = os.read(stream, 1 << 16)
            if not more:
                return b""
            self.buffer += more
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def ask(self, program: Program, part: str, limit: float, fresh: bool = False) -> dict:
        """The reply: `status`, `message` and what a part gives. `limit`: seconds of work in each stage."""
        if self.process is None or self.served >= SERVED or fresh:
            self.start()
        self.served += 1
        stage, reply = "start", None
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps({"program": program.to_json(), "part": part}).encode() + b"\n")
            self.process.stdin.flush()
        while reply is None:
            line = self.line(limit)
            if line is None:
                late = "slow reference" if stage in JUDGING else "hang"
                reply = {"status": late, "message": f"{stage}: no answer after {limit:g} s of work, or of none"}
            elif not line:
                reply = {"status": "crash", "message": f"{stage}: {self.ending()}"}
            else:
                answer = json.loads(line)
                stage, reply = answer.get("stage", stage), answer.get("result")
        if reply["status"] not in ("ok", "unsure") and not reply["status"].startswith("error"):
            self.stop()  # its memory may be damaged
        return reply

    def ending(self) -> str:
        """How the process ended, and what it said."""
        code = self.process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        self.errors.seek(0)
        said = [one for one in self.errors.read().decode(errors="replace").split("\n") if one.strip()]
        return f"{how}: {' | '.join(said[:3])[:300]}"


class Bench:
    """Both kinds of processes: `run` is all that is looked at."""

    def __init__(self, module: str, limit: float):
        self.limit = limit
        self.main = Worker(2, module)
        self.cut = Worker(7, module) if module == "ferrax" else None

    def run(self, program: Program, fresh: bool = False) -> dict:
        if program.plan:
            return (self.cut or self.main).ask(program, "main", self.limit, fresh)
        reply = self.main.ask(program, "main", self.limit, fresh)
        if reply["status"] not in ("ok", "unsure") or self.cut is None:
            return reply
        other = self.cut.ask(program, "cut", self.limit, fresh)
        if other["status"] != "ok":
            status = other["status"] if other["status"] in ("crash", "hang") else f"cut {other['status']}"
            return {"status": status, "message": f"plans verified, work cut for {self.cut.threads}: {other['message']}"}
        if other["digest"] != reply.get("digest", other["digest"]):
            return {"status": "bits cut", "message": f"other bits where work is cut for {self.cut.threads} threads"}
        return reply

    def stop(self) -> None:
        for worker in (self.main, self.cut):
            if worker is not None:
                worker.stop()

"""The command line: random programs for some minutes, those of seeds, or what was found before.

The exit status is 1 if something is found. Each failure is shrunk, printed as a program of a few lines and kept in
`--out` as that and as a JSON file; moved to `tests/python/sizes_found` it is run with the tests. Values are bounded by
rules that may be too strict: what they say is wrong of JAX as well, of the same inputs or of others, is printed, and
neither kept nor counted.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import math
import os
import pathlib
import random
import re
import sys
import time

from .generate import program_of
from .parts import ASKED
from .program import Program, script
from .shrink import shrunk, signature
from .workers import FINE, ROOT, Bench

OUT = ROOT / "fuzz" / "artifacts" / "sizes"
MEBIBYTE = 1 << 20
DRAWS = 16  # of inputs, of which JAX's results are looked at
FAR = 2.0  # times as far off as JAX is no fault


class Campaign:
    def __init__(self, options):
        self.options, self.counts = options, collections.Counter()
        self.found: dict[str, int] = collections.Counter()
        self.bench = Bench(options.module, options.limit)
        self.jax = Bench("jax", options.limit)

    def of_jax(self, program: Program, found: dict) -> dict | None:
        """What the same rules find wrong of JAX, or that its derivatives are as far off. Which way a value is rounded
        is luck, so inputs are drawn anew."""
        status = found["status"]
        if self.options.strict or not status.startswith("wrong") or program.plan or self.options.module == "jax":
            return None
        for draw in range(DRAWS):
            reply = self.jax.run(dataclasses.replace(program, seed=program.seed + draw))
            if reply["status"].startswith("wrong"):
                return reply
            if FAR * reply.get("off", 0.0) > found.get("off", math.inf):
                return {"status": f"{reply['off']:.2g} off", "message": f"here {found['off']:.2g}"}
        return None

    def report(self, program: Program, reply: dict) -> None:
        """Shrinks a failure; prints and keeps it if it is of a new kind."""
        options, status = self.options, reply["status"]
        print(f"seed {program.seed}: {status}: {reply['message'][:400]}", flush=True)
        fresh = status in ("crash", "hang")
        run = self.bench.run if not fresh else lambda one: self.bench.run(one, fresh=True)
        least = shrunk(program, status, run, options.shrink) if status != "hang" else program
        name = signature(least, status)
        self.found[name] += 1
        if self.found[name] > 1:
            return
        last = run(least) if status != "hang" else reply
        if last["status"] in FINE:
            last = reply
        other = self.of_jax(least, last)
        if other:
            self.counts["JAX as well"] += 1
            del self.found[name]
            print(f"JAX as well: {other['status']}: {other['message'][:400]}\n{script(least)}", flush=True)
            return
        file = options.out / f"{re.sub(r'[^a-z]+', '_', status.lower()).strip('_')[:40]}-{program.seed}.json"
        options.out.mkdir(parents=True, exist_ok=True)
        file.write_text(dataclasses.replace(least, note=f"{status}: {last['message']}").to_json())
        file.with_suffix(".py").write_text(script(least))
        print(f"\n# {name}\n# {last['message']}\n# {file}\n{script(least)}", flush=True)

    def look(self, program: Program) -> None:
        reply = self.bench.run(program)
        status = reply["status"]
        self.counts["plans" if program.plan else program.mode] += 1
        if status not in FINE:
            self.counts["failures"] += 1
            self.report(program, reply)
        elif status != "ok":
            self.counts[status] += 1

    def random(self) -> None:
        options = self.options
        end, seed = time.monotonic() + 60 * options.minutes, options.seed
        while time.monotonic() < end if options.count is None else seed < options.seed + options.count:
            program = program_of(seed, options.most * MEBIBYTE, options.plans)
            seed += 1
            self.look(program)
        print(f"{seed - options.seed} seeds from {options.seed}: {dict(self.counts)}")

    def stop(self) -> None:
        self.bench.stop()
        self.jax.stop()

    def replay(self) -> None:
        """A folder is all the cases in it."""
        path = pathlib.Path(self.options.replay)
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise SystemExit(f"{path} has no cases")
        for file in files:
            program = Program.from_json(file.read_text())
            reply = self.bench.run(program)
            if reply["status"] not in FINE and not self.of_jax(program, reply):
                self.found[file.name] += 1
                print(f"{file}: {reply['status']}: {reply['message']}\n{script(program)}", flush=True)
        print(f"{len(files)} programs, {len(self.found)} failed")


def arguments(texts: list[str] | None = None):
    parser = argparse.ArgumentParser("python -m fuzz.sizes", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--minutes", type=float, default=10.0, help="how long new programs are drawn")
    parser.add_argument("--seed", type=int, help="of the first program; a fresh one is drawn and printed")
    parser.add_argument("--count", type=int, help="so many programs, however long they take")
    parser.add_argument("--replay", help="a JSON file of a program, or a folder of such")
    parser.add_argument("--most", type=int, default=64, help="MiB of the largest input")
    parser.add_argument("--plans", type=float, default=0.3, help="the share of programs only compiled, and verified")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of work, or of none, of a call that hangs")
    parser.add_argument("--shrink", type=float, default=45.0, help="seconds for making a failure simpler")
    parser.add_argument("--out", type=pathlib.Path, default=OUT, help="where failures are kept")
    parser.add_argument("--parts", action="store_true", help="run them on parts of their inputs, cut at random, too")
    parser.add_argument("--strict", action="store_true", help="count also what the bounds find wrong of JAX, too")
    parser.add_argument("--module", default="ferrax", help="what is tested; `jax` tests the fuzzer")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(texts)
    if options.parts:
        os.environ[ASKED] = "1"
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 31)
    return options


def main() -> int:
    options = arguments()
    if options.serve:
        from .checks import serve  # NumPy and the library are for the process that serves alone

        serve(options.module)
        return 0
    campaign = Campaign(options)
    try:
        if options.replay:
            campaign.replay()
        else:
            print(f"fuzz sizes: python -m fuzz.sizes --seed {options.seed}", flush=True)
            campaign.random()
    finally:
        campaign.stop()
    for name, times in sorted(campaign.found.items()):
        print(f"found {times} x {name}")
    return 1 if campaign.found else 0


if __name__ == "__main__":
    sys.exit(main())

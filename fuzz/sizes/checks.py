"""What has to hold of a program, and the process in which it is looked at.

`main` runs a program by `jit` and op by op and holds both to the reference; then again, in memory that was filled with
NaN, and with other numbers of threads, which change no bit; and on parts, by the devices of a mesh, to the reference.
`cut` runs it in a process whose work is cut for another number of threads and whose plans are verified: the same
bits. A program that is a plan is only compiled, and its plan verified.

The process answers requests, one a line of JSON, with lines that say what it is at, and then with the reply.
"""

import contextlib
import hashlib
import importlib
import json
import os
import re
import resource
import sys
import traceback

import numpy as np

from . import derivatives, parts
from .bounds import Unsure, numpy_dtype, wrong
from .program import COMPLEX, FLOATS, Program
from .reference import evaluate

THREADS = (1, 2, 7)
MEMORY = 12 << 30  # bytes of address space beyond which a request is refused


# In these the order of terms follows from how operands lie in memory; elsewhere fusion changes no bit.
PRODUCTS = re.compile(r"@|dot|einsum|conv|linalg|attention|fft")


class Wrong(Exception):
    def __init__(self, kind: str, message: str, **more):
        super().__init__(message)
        self.kind, self.more = kind, more


def inputs_of(program: Program, seed: int) -> list[np.ndarray]:
    rng, arrays = np.random.default_rng(seed), []
    for one in program.inputs:
        shape, dtype = program.extents(one.shape), numpy_dtype(one.dtype)
        if one.dtype == "bool":
            array = rng.random(shape) < 0.5
        elif one.dtype in FLOATS:
            array = rng.standard_normal(shape)
        elif one.dtype in COMPLEX:
            array = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
        elif one.below is not None:
            array = rng.integers(0, max(program.size(one.below), 1), shape)
        else:
            array = rng.integers(0 if one.dtype.startswith("u") else -5, 6, shape)
        arrays.append(np.asarray(array).astype(dtype))
    return arrays


class Subject:
    """A program in the library that is tested: `module` is its name, `jax` for the one that it is modelled on."""

    def __init__(self, program: Program, module: str):
        self.program, self.ferrax = program, module == "ferrax"
        self.jax = importlib.import_module(module)
        self.jnp, lax = importlib.import_module(f"{module}.numpy"), importlib.import_module(f"{module}.lax")
        importlib.import_module(f"{module}.ops")
        self.jax.config.update("jax_enable_x64", program.x64())
        self.names = {"jax": self.jax, "jnp": self.jnp, "lax": lax}
        self.plain = self.defined(program.function())
        self.function = derivatives.called(self.jax, self.plain, program)
        donated = program.floats()[:1] if program.mode == "donate" else ()
        self.compiled = self.jax.jit(self.function, donate_argnums=tuple(donated))

    def defined(self, text: str):
        names = dict(self.names)
        exec(text, names)
        return names["f"]

    def batches(self) -> list[list[np.ndarray]]:
        """The inputs, of which there are several where they are a batch."""
        count = self.program.batch if self.program.mode == "vmap" else 1
        return [inputs_of(self.program, self.program.seed + number) for number in range(count)]

    def arrays(self, batches) -> list[np.ndarray]:
        return [np.stack(some) for some in zip(*batches)] if self.program.mode == "vmap" else batches[0]

    def call(self, function, arrays) -> list[np.ndarray]:
        given = [self.jnp.array(one, copy=True) for one in arrays]
        results = [np.array(one) for one in function(*given)]
        if self.program.mode != "donate":
            for number, (before, after) in enumerate(zip(arrays, given)):
                if before.tobytes() != np.asarray(after).tobytes():
                    raise Wrong("input changed", f"input {self.program.inputs[number].name} was changed")
        return results

    def spoil(self, results) -> None:
        """Fills memory of the sizes that the program uses with NaN, and lets it go."""
        program = self.program
        sizes = {one.nbytes for one in results} | {program.bytes()}
        for line in program.lines:
            sizes.add(int(np.prod(program.extents(line.shape), dtype=np.int64)) * numpy_dtype(line.dtype).itemsize)
        filled = [self.jnp.full((size,), -1, "int8") for size in sorted(sizes | {sum(sizes)}) if size]
        for one in filled:
            one.block_until_ready()

    def threads(self, count: int) -> None:
        if self.ferrax:
            self.jax.config.update("jax_num_threads", count)


def digest_of(arrays) -> str:
    return hashlib.sha256(b"".join(one.tobytes() for one in arrays)).hexdigest()


def verified(program: Program, module: str, stage) -> dict:
    """Only compiled."""
    subject = Subject(program, module)
    stage("compile")
    if subject.ferrax:
        subject.jax.config.update("jax_enable_checks", True)
    leading = (program.batch,) if program.mode == "vmap" else ()
    shapes = [subject.jax.ShapeDtypeStruct((*leading, *program.extents(one.shape)), numpy_dtype(one.dtype))
              for one in program.inputs]  # fmt: skip
    subject.compiled.lower(*shapes).compile()
    return {"status": "ok"}


def cut(program: Program, module: str, stage) -> dict:
    """The bits of results where plans are verified and work is cut otherwise."""
    subject = Subject(program, module)
    stage("jit")
    subject.jax.config.update("jax_enable_checks", True)
    return {"status": "ok", "digest": digest_of(subject.call(subject.compiled, subject.arrays(subject.batches())))}


def main(program: Program, module: str, stage) -> dict:
    subject = Subject(program, module)
    batches = subject.batches()
    mapped = program.mode == "vmap"
    arrays = subject.arrays(batches)
    stage("jit")
    first = subject.call(subject.compiled, arrays)
    stage("op by op")
    eager = subject.call(subject.function, arrays)
    derived, parted, more = program.mode in ("grad", "jvp"), [], {}
    if subject.ferrax and program.mode == "plain" and os.environ.get(parts.ASKED):
        stage("on parts")
        function, how = parts.on_parts(subject, arrays, program.seed)
        parted = [(f"on parts, {how}", subject.call(function, arrays))]
    stage("reference")
    if derived:
        message, more["off"] = derivatives.judged(subject, arrays, first, eager, stage)
        if message:
            raise Wrong(*message, **more)
    else:
        for number, given in enumerate(batches):
            for place, expected in enumerate(evaluate(program, given, program.x64())):
                for kind, results in (("op by op", eager), ("jit", first), *parted):
                    message = wrong(results[place][number] if mapped else results[place], expected)
                    if message:
                        raise Wrong(f"wrong {kind}", f"{kind}, result {program.outputs[place]}: {message}")
    for kind, threads in (("again", None), *(("threads", count) for count in THREADS)):
        stage(f"jit, {kind}")
        if threads is None:
            subject.spoil(first)
        else:
            subject.threads(threads)
        other = subject.call(subject.compiled, arrays)
        for place, (a, b) in enumerate(zip(first, other)):
            if a.tobytes() != b.tobytes():
                how = f" with {threads} threads" if threads else ""
                raise Wrong(f"bits {kind}", f"result {place} has other bits in another run{how}: {apart(a, b)}")
    for place, (a, b) in enumerate(zip(first, eager)):
        if not derived and not PRODUCTS.search(program.function()) and a.tobytes() != b.tobytes():
            raise Wrong("bits fused", f"result {place} has other bits than op by op: {apart(a, b)}")
    return {"status": "ok", "digest": digest_of(first), **more}


def apart(a: np.ndarray, b: np.ndarray) -> str:
    differ = np.asarray(a.view("u1") != b.view("u1")) if a.ndim else np.array([True])
    return f"{a.dtype}{a.shape}, {np.count_nonzero(differ)} bytes differ"


def kind_of(error: Exception) -> str:
    """An error's class and message without what depends on sizes."""
    message = str(error).split("\n")[0]
    return f"error {type(error).__name__}: {re.sub(r'[0-9]+', 'N', message)}"[:100]


def reply_to(request: dict, module: str, stage) -> dict:
    program = Program.from_json(request["program"])
    try:
        part = verified if program.plan else {"cut": cut, "main": main}[request["part"]]
        return part(program, module, stage)
    except Wrong as error:
        return {"status": error.kind, "message": str(error), **error.more}
    except Unsure:
        return {"status": "unsure", "message": "a branch depends on what is not exact"}
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = any("/fuzz/sizes/reference" in one.filename or one.filename.endswith("bounds.py") for one in frames)
        if ours:
            return {"status": "reference", "message": "".join(traceback.format_exception(error)[-4:])}
        return {"status": kind_of(error), "message": f"{type(error).__name__}: {str(error)[:600]}"}


def serve(module: str) -> None:
    """Answers requests until there are no more; what else is printed goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def send(reply: dict) -> None:
        answers.write(json.dumps(reply) + "\n")
        answers.flush()

    for line in sys.stdin:
        send({"result": reply_to(json.loads(line), module, lambda name: send({"stage": name}))})

"""Run by several processes, one of which does not do what the others do."""

import os
import signal
import sys
import time

import numpy as np

import ferrax
import ferrax.numpy as jnp
from ferrax._src.parallel import exchange

kind = sys.argv[1]
ferrax.distributed.initialize(heartbeat_timeout_seconds={"late": 2, "leave": 20}.get(kind, 60))
me, count = ferrax.process_index(), ferrax.process_count()
everybody = [list(range(count))]


def psum(length=4, line="here"):
    return exchange.run("psum", np.ones((1, length), np.float32), everybody, line=line)


assert psum().tolist() == [[count] * 4]
odd = me == count - 1
if odd:
    print(f"pid {os.getpid()}", flush=True)
match kind:
    case "small":  # another shape, in one message
        psum(5 if odd else 4, line="odd.py:1" if odd else "even.py:2")
    case "large":
        psum(500_000 if odd else 400_000, line="odd.py:1" if odd else "even.py:2")
    case "mixed":  # memory that follows its header, and none
        psum(4 if odd else 400_000, line="odd.py:1" if odd else "even.py:2")
    case "programs":  # jitted functions and others of arrays over the processes
        mesh = ferrax.make_mesh((count,), ("i",), axis_types=(ferrax.sharding.AxisType.Auto,))
        x = ferrax.device_put(np.arange(8.0), ferrax.NamedSharding(mesh, ferrax.P("i")))
        assert float(jnp.sum(x)) == float(ferrax.jit(jnp.sum)(x)) == 28
        if odd:
            exec(compile("\n" + "ferrax.jit(lambda x: jnp.max(x))(x)", "odd.py", "exec"))
        else:
            exec(compile("jnp.sum(x)", "even.py", "exec"))
    case "kinds":
        if odd:
            exchange.run("all_gather", np.ones((1, 4), np.float32), everybody, line="odd.py:1")
        else:
            psum(4, line="even.py:2")
    case "raise":
        if odd:
            raise ValueError("this process has enough")
        psum()
    case "kill":
        if odd:
            os.kill(os.getpid(), signal.SIGKILL)
        psum()
    case "interrupt":
        if odd:
            time.sleep(60)
        psum()
    case "busy":  # all compute and exchange
        end = time.monotonic() + 60
        while time.monotonic() < end:
            psum(100_000)
            jnp.ones((300, 300)) @ jnp.ones((300, 300))
    case "leave":
        if odd:
            sys.exit(0)
        psum(line="even.py:2")
    case "late":
        if odd:
            time.sleep(60)
        psum(line="even.py:2")
print("nothing happened", flush=True)

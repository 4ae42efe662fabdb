"""A fuzzer of sizes: random programs over `jnp` and `lax`, as large as those whose code paths differ.

    .venv/bin/python -m fuzz.sizes --minutes 10         # a fresh seed, which is printed
    .venv/bin/python -m fuzz.sizes --seed 123 --count 1 # one program again
    .venv/bin/python -m fuzz.sizes --parts              # each also by the devices of a mesh, cut at random
    .venv/bin/python -m fuzz.sizes --replay FILE.json   # what was found, again; a folder: all that is in it

What is in which module:

| module | holds |
|---|---|
| `program` | a program as text over named sizes, its JSON, and the standalone script that shows a fault |
| `sizes` | which shapes and dtypes are drawn |
| `steps` | tables of lines of one or two operands |
| `layers`, `flow` | products and the like; computed places, loops, branches |
| `generate` | a random program of a seed |
| `bounds` | values with a bound of the error beside each element |
| `reference`, `reference_*` | `jnp` and `lax` over those: NumPy in 64 bits, independent of what is tested |
| `checks`, `derivatives` | what is compared; this runs in a process of its own |
| `workers` | these processes, which may crash or hang |
| `shrink` | simpler programs that fail in the same way |
| `__main__` | the command line |
"""

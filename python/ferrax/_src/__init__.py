"""What the public modules export is written here, in packages that are layers.

A package imports those before it, never one behind it, and no public module:

    base          settings, errors, dtypes, effects, source lines
    dims          symbolic dimensions
    tree          pytrees
    core          types of values, primitives, jaxprs, names of arguments, devices
    profiling     what ran when, and what is in memory
    state         mutable arrays
    tracing       functions to programs
    lax           the operations
    transforms    jit, derivatives, batching, checkpoints, functions with rules of their own
    composed      operations of `ferrax.lax` that need transformations
    numpy         NumPy's functions, indexing, methods of arrays
    random        keys and samplers
    nn            activations and initial values
    callbacks     Python functions in compiled programs, printing, the debugger
    experimental  checkify, jet, odeint
    pallas        kernels over grids
    interop       PyTorch's tensors, and what programs that were written against JAX's extension modules ask for

`startup` connects them when ferrax is imported. `make lint` holds the order.
"""

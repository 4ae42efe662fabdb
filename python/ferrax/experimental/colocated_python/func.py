"""``ferrax.experimental.colocated_python.func``: there are no names here.

JAX has here how functions get to other processes, which libraries change where there are such. Functions run in the
process that has the arrays.
"""

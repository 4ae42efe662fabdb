"""Functions to programs: traces, functions with transformations, leaks of tracers."""

"""Programs written against JAX, run unmodified.

`install` makes imports of `jax` mean ferrax (`finder`); `private` holds what libraries import of JAX's
private modules; `program` runs a script like Python does; `path` is a folder for PYTHONPATH; `absences`
says what there is instead of what ferrax lacks.
"""

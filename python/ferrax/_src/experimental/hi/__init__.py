"""Values that are no arrays: their types, how they become arrays, primitives over them, boxes."""

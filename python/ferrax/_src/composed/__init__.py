"""Operations of `ferrax.lax` that are made of others and of transformations."""

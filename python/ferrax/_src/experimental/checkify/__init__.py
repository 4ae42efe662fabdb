"""Run-time errors as values: what `ferrax.experimental.checkify` exports is written here."""

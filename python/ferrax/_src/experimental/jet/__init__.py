"""Taylor-mode differentiation: what `ferrax.experimental.jet` exports is written here."""

"""What `ferrax.experimental` exports."""

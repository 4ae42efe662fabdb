"""Settings, errors, dtypes, effects and source lines: what knows no arrays."""

"""Costs of functions on a machine whose memory and links bound them: `model` walks, `rules` and `collectives` count."""

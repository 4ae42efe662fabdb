"""Implementation of ``ferrax.lax``. Import the public names from there."""

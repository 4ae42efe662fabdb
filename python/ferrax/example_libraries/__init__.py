"""Small libraries on top of ferrax: optimizers, and layers of neural networks."""

"""A photograph is deblurred: FFTs and a proximal gradient method.

The blur is a convolution with a Gaussian, a product in the Fourier domain; FISTA (Beck & Teboulle,
2009) minimises half the squared misfit plus the absolute values of Haar wavelet coefficients, whose
proximal map is a soft threshold. The loop is a `scan`.
"""

import numpy as np
from common import check, options, pyplot, save
from sklearn.datasets import load_sample_image

import ferrax as jax
import ferrax.numpy as jnp

WIDTH, NOISE, LEVELS = 1.0, 0.003, 3


def load_photograph(size):
    """A square piece in shades of grey, f32[size, size] in [0, 1]."""
    photograph = load_sample_image("china.jpg").mean(axis=-1) / 255
    return photograph[100 : 100 + size, 150 : 150 + size].astype(np.float32)


def transfer(size):
    """The Fourier transform of the blur, real, for `rfft2`."""
    rows, columns = np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None]
    return np.exp(-2 * (np.pi * WIDTH) ** 2 * (rows**2 + columns**2)).astype(np.float32)


def haar(image, levels=LEVELS):
    """Orthonormal Haar coefficients: the coarse image in the corner, details around it."""
    if not levels:
        return image
    for axis in (0, 1):
        even, odd = (jnp.take(image, jnp.arange(k, image.shape[axis], 2), axis=axis) for k in (0, 1))
        image = jnp.concatenate([even + odd, even - odd], axis=axis) * 0.5**0.5
    half = image.shape[0] // 2
    return image.at[:half, :half].set(haar(image[:half, :half], levels - 1))


def inverse_haar(coefficients, levels=LEVELS):
    if not levels:
        return coefficients
    half = coefficients.shape[0] // 2
    coarse = inverse_haar(coefficients[:half, :half], levels - 1)
    image = coefficients.at[:half, :half].set(coarse)
    for axis in (1, 0):
        low, high = jnp.split(image, 2, axis=axis)
        pairs = jnp.stack([low + high, low - high], axis=axis + 1) * 0.5**0.5
        image = pairs.reshape(image.shape)
    return image


def make_restorer(blurred, kernel, steps, weight):
    def blur(image):
        return jnp.fft.irfft2(kernel * jnp.fft.rfft2(image), image.shape)

    def misfit(image):
        return 0.5 * jnp.sum((blur(image) - blurred) ** 2)

    def step(state, _):
        image, ahead, momentum = state
        coefficients = haar(ahead - jax.grad(misfit)(ahead))
        shrunk = jnp.sign(coefficients) * jnp.maximum(jnp.abs(coefficients) - weight, 0)
        new = inverse_haar(shrunk)
        next_momentum = 0.5 * (1 + jnp.sqrt(1 + 4 * momentum**2))
        ahead = new + (momentum - 1) / next_momentum * (new - image)
        return (new, ahead, next_momentum), misfit(new) + weight * jnp.sum(jnp.abs(shrunk))

    start = blurred, blurred, jnp.float32(1)
    return jax.jit(lambda: jax.lax.scan(step, start, None, length=steps))


def noise_ratio(image, truth):
    """Peak signal to noise ratio in decibels."""
    return -10 * jnp.log10(jnp.mean((image - truth) ** 2))


def main():
    small = options(__doc__).small
    size, steps = (128, 60) if small else (256, 60)  # stopped before it fits the noise
    truth = load_photograph(size)
    kernel = transfer(size)
    noise = NOISE * jax.random.normal(jax.random.key(0), truth.shape)
    blurred = jnp.fft.irfft2(kernel * jnp.fft.rfft2(truth), truth.shape) + noise
    (restored, _, _), objective = make_restorer(blurred, kernel, steps, weight=1e-4)()
    figure, axes = pyplot.subplots(1, 4, figsize=(14, 4))
    for place, image, title in zip(axes, (truth, blurred, restored), ("truth", "given", "restored")):
        place.imshow(image, cmap="gray", vmin=0, vmax=1)
        place.set(title=title, xticks=[], yticks=[])
    axes[3].semilogy(objective)
    axes[3].set(title="objective", xlabel="step")
    save(figure, "deblur.png")
    back = inverse_haar(haar(truth))
    check("Haar transform there and back", jnp.max(jnp.abs(back - truth)), high=1e-5)
    before, after = noise_ratio(blurred, truth), noise_ratio(restored, truth)
    check("signal to noise before (dB)", before)
    check("signal to noise after (dB)", after, low=before + 3)


if __name__ == "__main__":
    main()

"""Keras with its backend for JAX: models fitted, evaluated, saved and loaded; a training step by hand; operations."""

import os
import tempfile

os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
import keras
import numpy as np
from report import done, report

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
images = rng.normal(size=(32, 8, 8, 1)).astype("float32")
labels = rng.integers(0, 3, 32)
layers, ops = keras.layers, keras.ops

model = keras.Sequential(
    [
        keras.Input((8, 8, 1)), layers.Conv2D(4, 3, activation="relu"), layers.BatchNormalization(),
        layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.2), layers.Dense(3),
    ]
)  # fmt: skip
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=loss, metrics=["accuracy"])
history = model.fit(images, labels, batch_size=8, epochs=2, validation_split=0.25, verbose=0, shuffle=False).history
report("measured", sorted(history))
report("losses", [*history["loss"], *history["val_loss"]], rtol=2e-3)
report("evaluated", model.evaluate(images, labels, verbose=0), rtol=2e-3)
predicted = model.predict(images[:4], verbose=0)
report("predicted", predicted, rtol=2e-3, atol=1e-3)
with tempfile.TemporaryDirectory() as folder:
    model.save(f"{folder}/model.keras")
    again = keras.models.load_model(f"{folder}/model.keras").predict(images[:4], verbose=0)
report("loaded", str(np.array_equal(again, predicted)))

inputs = keras.Input((6,), dtype="int32")
embedded = layers.Embedding(10, 8)(inputs)
embedded = layers.LayerNormalization()(embedded + layers.MultiHeadAttention(2, 4)(embedded, embedded))
outputs = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(embedded)
text = keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling1D()(outputs)))
words, targets = rng.integers(0, 10, (16, 6)), rng.normal(size=(16, 1)).astype("float32")
text.compile(optimizer="rmsprop", loss="mse")
report("text", text.fit(words, targets, epochs=2, batch_size=8, verbose=0, shuffle=False).history["loss"], rtol=2e-3)

optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
optimizer.build(text.trainable_variables)


@jax.jit
def step(trained, others, state):
    def loss(trained):
        found, rest = text.stateless_call(trained, others, words, training=True)
        return jnp.mean((found - targets) ** 2), rest

    (value, others), gradient = jax.value_and_grad(loss, has_aux=True)(trained)
    trained, state = optimizer.stateless_apply(state, gradient, trained)
    return value, (trained, others, state)


variables = text.trainable_variables, text.non_trainable_variables, optimizer.variables
state, losses = tuple([variable.value for variable in kind] for kind in variables), []
for _ in range(3):
    value, state = step(*state)
    losses.append(value)
report("by hand", losses, rtol=2e-3)

matrix = images[0, :, :, 0]
report("recurrent", layers.GRU(3)(jnp.asarray(rng.normal(size=(2, 5, 3)), jnp.float32)), rtol=1e-4)
report("largest", ops.top_k(matrix, 2)[0])
report("segments", ops.segment_sum(targets[:, 0], ops.sort(words[:, 0]), 10))
report("factors", ops.qr(matrix)[1] ** 2, rtol=1e-3, atol=1e-5)
report("cross", ops.cross(targets[:3, 0], targets[3:6, 0]))
report("resized", ops.image.resize(images[:2], (4, 4)), rtol=1e-4)
report("scanned", ops.scan(lambda c, x: (c + x, c * x), ops.convert_to_tensor(0.0), ops.arange(5, dtype="float32"))[1])
report("mapped", ops.vectorized_map(lambda x: ops.sum(x * x), ops.convert_to_tensor(targets)), rtol=1e-4)
report("mixed", str(layers.Dense(2, dtype="mixed_bfloat16")(targets[:2]).dtype))
done()

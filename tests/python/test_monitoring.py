"""Events and listeners beside JAX's, and those that compilations record."""

import functools

import numpy as np
import pytest
from oracle import same

import ferrax

KINDS = ("event", "event_duration_secs", "event_time_span", "scalar")


def functions(S):
    m = S.jax.monitoring
    unregister = {"event_duration_secs": m.unregister_event_duration_listener}
    return {
        kind: (
            getattr(m, f"register_{kind}_listener"),
            unregister.get(kind) or getattr(m, f"unregister_{kind}_listener"),
            getattr(
                m,
                "record_event_duration_secs" if kind == "event_duration_secs" else f"record_{kind}",
            ),
        )
        for kind in KINDS
    }


@pytest.mark.parametrize("kind", KINDS)
@same
def test_listeners_are_told_in_their_order(S, kind):
    register, unregister, record = functions(S)[kind]
    seen = []

    def listener(name, *values, **metadata):
        seen.append((name, values, metadata))

    values = {
        "event": (),
        "event_duration_secs": (0.5,),
        "event_time_span": (1.0, 2.0),
        "scalar": (3,),
    }[kind]
    other = functools.partial(listener, "second")
    first = functools.partial(listener, "first")
    register(first)
    register(other)
    register(first)
    record("/a/b", *values, user="me")
    unregister(first)
    record("/a/c", *values)
    unregister(first)
    unregister(other)
    record("/a/d", *values)
    return seen


@pytest.mark.raises("AssertionError")
@pytest.mark.parametrize("kind", KINDS)
@same
def test_what_is_not_registered_cannot_be_unregistered(S, kind):
    functions(S)[kind][1](print)


def test_traces_and_compilations_are_events():
    durations, spans, scalars = [], [], []
    listen = lambda where: lambda *values, **metadata: where.append((*values, metadata))  # noqa: E731
    monitoring = ferrax.monitoring
    monitoring.register_event_duration_secs_listener(listen(durations))
    monitoring.register_event_time_span_listener(listen(spans))
    monitoring.register_scalar_listener(listen(scalars))
    try:

        def halve(x):
            return x / 2

        jitted = ferrax.jit(halve)
        jitted(np.float32(3))
        jitted(np.float32(4))
        jitted(np.ones(3, np.float32))
    finally:
        monitoring.clear_event_listeners()
    ferrax.jit(lambda x: x - 1)(3.0)
    names = [("jaxpr_trace", "halve"), ("backend_compile", "jit(halve)")] * 2
    wanted = [(f"/jax/core/compile/{what}_duration", {"fun_name": name}) for what, name in names]
    assert [(event, metadata) for event, _, metadata in durations] == wanted
    assert [(event, metadata) for event, _, metadata in scalars] == wanted
    for (_, seconds, _), (_, start, end, _), (_, began, _) in zip(
        durations, spans, scalars, strict=True
    ):
        assert seconds > 0 and start == began
        np.testing.assert_allclose(end - start, seconds, atol=1e-6)


def test_the_last_listener_ends_the_timing():
    listener = lambda *values, **metadata: None  # noqa: E731
    ferrax.monitoring.register_scalar_listener(listener)
    assert ferrax._src.base.monitoring.heard()
    ferrax.monitoring.unregister_scalar_listener(listener)
    assert not ferrax._src.base.monitoring.heard()

"""Functions of several devices that meet where they exchange something: what they return, and how they end together."""

import signal
import threading

import numpy as np
import pytest

import ferrax
from ferrax._src.parallel import lockstep


def summed(what, frames):
    return np.broadcast_to(frames.sum(0), frames.shape)


def meets(number, *calls):
    """A function that meets the others for each of these, and returns what it then holds."""

    def function():
        held = np.float32(number)
        for what in calls:
            held = lockstep.meeting()(what, np.asarray(held))
        return held

    return function


@pytest.mark.parametrize("count", [1, 2, 8])
def test_all_get_what_all_hold(count):
    found = lockstep.run([meets(number, "sum", "sum") for number in range(count)], summed)
    assert found == [sum(range(count)) * count] * count
    assert lockstep.run([lambda: 3], summed) == [3] and lockstep.meeting() is None


def test_the_order_of_frames_is_that_of_functions():
    seen = []
    lockstep.run([meets(number, "look") for number in range(6)], lambda what, frames: seen.append(frames.tolist()) or frames)
    assert seen == [[0, 1, 2, 3, 4, 5]]


def fails():
    raise ValueError("has enough")


@pytest.mark.parametrize("functions", [[meets(0, "a"), fails, meets(2, "a")], [fails, fails], [meets(0, "a", "b"), fails]])
def test_the_first_error_ends_all(functions):
    before = threading.active_count()
    with pytest.raises(ValueError, match="has enough"):
        lockstep.run(functions, summed)
    assert threading.active_count() <= before + 1
    with pytest.raises(ZeroDivisionError):
        lockstep.run([meets(number, "a") for number in range(3)], lambda what, frames: 1 // 0)


@pytest.mark.parametrize("other, told", [(("b",), "others do b"), ((), "1 of them have ended"), (("a", "a"), "1 of them have ended")])
def test_those_that_do_not_do_the_same_are_told(other, told):
    with pytest.raises(ferrax.errors.JaxRuntimeError, match=f"do not do the same: .* wait in .*{told}"):
        lockstep.run([meets(0, "a"), meets(1, *other)], summed)


def test_flags_of_the_thread_are_those_of_all():
    with ferrax.enable_x64(True):
        assert lockstep.run([lambda: ferrax.config.jax_enable_x64] * 2, summed) == [True, True]
    assert lockstep.run([lambda: ferrax.config.jax_enable_x64] * 2, summed) == [ferrax.config.jax_enable_x64] * 2


def test_an_interrupt_ends_all():
    def interrupts():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        threading.Event().wait(2)
        return lockstep.meeting()("a", np.zeros(()))

    # A process that a shell starts in the background ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            lockstep.run([meets(0, "a"), interrupts], summed)
    finally:
        signal.signal(signal.SIGINT, before)

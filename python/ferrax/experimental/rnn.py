"""Layers of long short-term memory."""

from ferrax._src.base import public as _public
from ferrax._src.nn.lstm import (
    get_num_params_in_lstm as get_num_params_in_lstm,
    init_lstm_weight as init_lstm_weight,
    lstm as lstm,
    lstm_ref as lstm_ref,
    swap_lstm_gates as swap_lstm_gates,
    unpack_lstm_weights as unpack_lstm_weights,
)

_public.export(__name__)

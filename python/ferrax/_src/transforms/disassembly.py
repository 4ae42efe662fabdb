"""Machine code as text.

In: functions, each a name, its address and its bytes, which are instructions and constants. Out: the instructions, a
line for each, in Intel's order of operands. Cost: they are sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def text(functions: Iterable[tuple[str, int, bytes]]) -> str:
    """The instructions of all functions. Errors: ImportError without the library that decodes them."""
    try:
        # An extra, which nothing else needs.
        import iced_x86
    except ImportError as error:
        raise ImportError(
            "as_text('asm') decodes instructions with iced-x86, which is not installed: pip install 'ferrax[asm]'"
        ) from error
    formatter = iced_x86.Formatter(iced_x86.FormatterSyntax.INTEL)
    parts = []
    for name, address, code in functions:
        lines = [f"{one.ip:x}  {formatter.format(one)}" for one in _instructions(iced_x86, address, code)]
        parts.append("\n".join([f"; {name}, {len(code)} bytes", *lines]))
    return "\n\n".join(parts) if parts else "; no machine code"


def _instructions(iced_x86, address: int, code: bytes) -> Iterator:
    """All that can be reached from the beginning, in order: constants cannot."""
    flow = iced_x86.FlowControl
    decoder = iced_x86.Decoder(64, code, ip=address)
    reached, begins = {}, [address]
    while begins:
        at = begins.pop()
        decoder.position, decoder.ip = at - address, at
        while decoder.can_decode and decoder.ip not in reached:
            one = decoder.decode()
            reached[one.ip] = one
            if one.flow_control in (flow.CONDITIONAL_BRANCH, flow.UNCONDITIONAL_BRANCH):
                begins.append(one.near_branch_target)
            if one.flow_control in (flow.RETURN, flow.UNCONDITIONAL_BRANCH):
                break
    return (reached[at] for at in sorted(reached))

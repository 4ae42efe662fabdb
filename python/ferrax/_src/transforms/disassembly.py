"""Machine code as text.

In: functions, each a name, its address and its bytes: instructions, of which the last is a return, and then constants.
Out: the instructions, a line for each, in Intel's order of operands. Cost: linear in the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def text(functions: Iterable[tuple[str, int, bytes]]) -> str:
    """The instructions of all functions. Errors: ImportError without the library that decodes them."""
    try:
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
    """Up to the return that no jump goes beyond."""
    furthest = address
    for one in iced_x86.Decoder(64, code, ip=address):
        yield one
        if one.flow_control in (iced_x86.FlowControl.CONDITIONAL_BRANCH, iced_x86.FlowControl.UNCONDITIONAL_BRANCH):
            furthest = max(furthest, one.near_branch_target)
        elif one.flow_control == iced_x86.FlowControl.RETURN and one.next_ip > furthest:
            return

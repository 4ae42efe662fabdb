"""Python functions called from compiled programs: callbacks, printing, the debugger."""

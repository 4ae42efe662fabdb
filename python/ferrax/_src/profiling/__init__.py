"""Profiles: what ran when, on which thread, and what is in memory.

    options         what is recorded
    annotations     what users mark
    python_tracer   calls of Python functions
    session         a profile from its start to its files
    space           a profile as data, and its XPlane form; `wire` and `text_proto` are how it is written
    data            what users read of a profile
    chrome          a profile as a Chrome trace
    memory          what is in memory, for pprof
    server          profiles of this process for others
    report, flame   a profile as a table and as a page
"""

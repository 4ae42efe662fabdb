"""From which line of a program each equation of a jaxpr is."""

from ferrax._src.base import public as _public
from ferrax._src.interop.source_maps import (
    Pass as Pass,
    SourceMap as SourceMap,
    SourceMapDump as SourceMapDump,
    all_passes as all_passes,
    canonicalize_filename as canonicalize_filename,
    filter_passes as filter_passes,
    generate_sourcemaps as generate_sourcemaps,
    register_pass as register_pass,
)

_public.export(__name__)

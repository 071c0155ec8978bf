"""The runs of ``tests/parallel/simulated/racing.py`` on the stand-in."""

from tests.on_cuda.translated import translated

globals().update(translated("tests/parallel/simulated/racing.py", "tests.on_cuda._racing"))

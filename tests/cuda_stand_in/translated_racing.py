"""The runs of ``tests/parallel/simulated/racing.py`` on the stand-in."""

from tests.cuda_stand_in.translated import translated

globals().update(translated("tests/parallel/simulated/racing.py", "tests.cuda_stand_in._racing"))

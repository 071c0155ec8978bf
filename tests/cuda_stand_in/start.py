"""Load the stand-in's operators as soon as torch has been imported. Copied into ``.venv-cuda``, which runs it at start."""

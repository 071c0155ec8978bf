"""Inside the child: a step, the clock around it, and what is read beside it."""

"""Text in and out: from outside, to files, in units. Nothing here knows what dpbench measures."""

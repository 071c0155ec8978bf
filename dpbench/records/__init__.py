"""What was measured: records, the files that hold them, comparisons, counts. Imports no torch."""

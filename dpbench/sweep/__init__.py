"""What is measured: the vocabulary, the sweep file, the grid and its order. No torch."""

"""Plans in engines that people have: what `heterog hand-over` wrote, as parts of their model."""

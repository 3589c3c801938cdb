"""How an optimizer updates a parameter, read off its own step()."""

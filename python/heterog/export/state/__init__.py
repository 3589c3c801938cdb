"""What an exported step depends on in Python, and what it changes there."""

"""What all rooms use: errors, files and values of others, the library, versions."""

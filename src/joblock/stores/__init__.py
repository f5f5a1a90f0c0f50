"""Floor 3: the stores, each in its own module, imported only when it is used."""

"""Floor 1: values that every other floor speaks in; nothing here does I/O."""

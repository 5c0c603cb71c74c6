"""Real verl behind the engine port; verl itself is imported only in the processes of a trial."""

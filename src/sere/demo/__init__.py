"""The bundled model, its data and tasks, and the demonstration that runs on it."""

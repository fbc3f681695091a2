"""The bundled model's tasks as tasks of lm-evaluation-harness, without any download.

``sere eval demo --tasks bundled`` runs them; so does the harness, with this folder as
``--include_path``.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
GROUP = "sere_bundled"

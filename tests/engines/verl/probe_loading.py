"""Has verl's processes import `probed_trainer` where the product's own trainer is imported."""

from __future__ import annotations

from sweep.engines.verl.plugins.loading import extend

extend("verl.trainer.ppo.v1.trainer_sync", "tests.engines.verl.probed_trainer")

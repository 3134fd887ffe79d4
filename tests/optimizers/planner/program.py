"""A training as a process of its own, to be killed: folder, epochs, the epoch to stall in, and whether to resume."""

import runpy
import sys
import time
from pathlib import Path

from journeyman.models.embedders import HashingEmbedder
from journeyman.optimizers.planner.config import NetworkConfig, SupervisedConfig
from journeyman.optimizers.planner.supervised import Epoch, train

if __name__ == "__main__":
    folder, epochs, stall, resume = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "resume"
    examples = runpy.run_path(str(Path(__file__).with_name("worlds.py")))["kitchen"](60)

    def progress(epoch: Epoch) -> None:
        sys.stdout.write(f"{epoch.number}\n")
        sys.stdout.flush()
        if epoch.number == stall:
            time.sleep(600)

    config = SupervisedConfig(epochs=epochs, network=NetworkConfig(width=16, rank=8), augmentations=10, patience=99, plateau=1)
    train(examples, HashingEmbedder(64), folder, config, resume=resume, progress=progress)

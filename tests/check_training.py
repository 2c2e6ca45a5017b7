#!/usr/bin/env python3
"""Checks what a run of train-lm left behind: check_training.py DIR LOG [--below-bigram NATS]

The run must have learned (its validation loss fell, and the training loss is far below the uniform ln 256), and its folder must
hold everything that the README promises. With --below-bigram the validation loss must end that far below the bigram table's.
"""

import json
import math
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

run, log = Path(sys.argv[1]), Path(sys.argv[2]).read_text(errors="replace")
config = json.loads((run / "config.json").read_text())
metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
steps = config["settings"]["train"]["steps"]


def require(holds, what):
    if not holds:
        sys.exit(f"training check: {what}")


require([row["step"] for row in metrics] == list(range(1, steps + 1)), "metrics.jsonl must hold every step once")
train = [row["train_loss"] for row in metrics]
validation = [row["validation_loss"] for row in metrics if row.get("validation_loss") is not None]
require(all(map(math.isfinite, train + validation)), "a loss is not finite")
require(abs(train[0] - math.log(256)) < 0.7, f"the first loss {train[0]} is far from ln 256")
require(min(train[-5:]) < 3.2, f"the training loss ends at {train[-5:]}")
require(len(validation) >= 2 and validation[-1] < validation[0], f"the validation loss went {validation}")
require(any((run / "checkpoint").iterdir()), "the checkpoint is empty")

chart = xml.parse(run / "loss.svg").getroot()
require(chart.tag.endswith("svg"), "loss.svg is no picture")
bigram = re.search(r"bigram\s+([0-9.]+) nats per byte", log)
require(bigram and 1 < float(bigram.group(1)) < 4, "the bigram line is missing")
require("fn main" in log, "the sample is missing")
if "--below-bigram" in sys.argv:
    gap = float(bigram.group(1)) - validation[-1]
    wanted = float(sys.argv[sys.argv.index("--below-bigram") + 1])
    require(gap >= wanted, f"the validation loss ends {gap:.3f} nats below the bigram table's, not {wanted}")
print(f"training check: {steps} steps, loss {train[0]:.2f} to {train[-1]:.2f}, validation {validation[-1]:.3f}, bigram {bigram.group(1)}")

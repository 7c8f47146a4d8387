"""How much of the interface has a known type, by `pyright --verifytypes`; fails below 95 %. `make types` runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEAST = 0.95


def main() -> int:
    pyright = Path(sys.executable).with_name("pyright")
    options = ["--verifytypes", "wonderland", "--ignoreexternal", "--outputjson"]
    command = [pyright, "--pythonpath", sys.executable, *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)  # fails below 100 %
    report = json.loads(run.stdout)["typeCompleteness"]
    score = report["completenessScore"]
    print(f"{score:.1%} of {sum(report['exportedSymbolCounts'].values())} symbols have a known type")
    if score >= LEAST:
        return 0
    for symbol in report["symbols"]:
        if symbol["isExported"] and (symbol["isTypeAmbiguous"] or not symbol["isTypeKnown"]):
            for found in symbol["diagnostics"]:
                print(f"{symbol['name']}: {' '.join(found['message'].split())}")
    print(f"at least {LEAST:.0%} are wanted: annotate the names above (parameters, results, attributes)")
    return 1


if __name__ == "__main__":
    sys.exit(main())

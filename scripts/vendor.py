"""Fetches the libraries that draw the charts of a page into pausejax/page/vendor/.

python scripts/vendor.py        (needs npm; does not run the fetched code)
"""

import hashlib
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

import tomli_w

FOLDER = Path(__file__).resolve().parents[1] / "pausejax" / "page" / "vendor"
# The tests compile every chart with vl-convert, whose newest Vega-Lite is 6.4.
LIBRARIES = {"vega": "6.4.0", "vega-lite": "6.4.3", "vega-embed": "7.3.0"}


def fetch(name, version, folder):
    """Unpacks a library's script and licence, and returns its entry of versions.toml."""
    command = ["npm", "pack", "--silent", f"{name}@{version}"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(folder / f"{name}-{version}.tgz") as package:
        read = {part: package.extractfile(f"package/{part}").read() for part in ("package.json", "LICENSE")}
        script = package.extractfile(f"package/build/{name}.min.js").read()
    (FOLDER / f"{name}.min.js").write_bytes(script)
    (FOLDER / f"{name}.LICENSE").write_bytes(read["LICENSE"])
    licence = json.loads(read["package.json"])["license"]
    return {"version": version, "sha256": hashlib.sha256(script).hexdigest(), "licence": licence}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        found = {name: fetch(name, version, Path(folder)) for name, version in LIBRARIES.items()}
    (FOLDER / "versions.toml").write_text(tomli_w.dumps(found), encoding="utf-8")

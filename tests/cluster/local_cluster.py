"""A Ray cluster on this machine's loopback; told by standard input to `add` or `remove` a node or to `exit`.

Answers every command, and its start with one node, with a line of JSON.
"""

import json
import os
import shutil
import sys
import tempfile

from ray.cluster_utils import Cluster

NODE = {
    "num_cpus": 1,
    "object_store_memory": 80 * 2**20,
    "include_dashboard": False,
    "node_ip_address": "127.0.0.1",
}


def main() -> None:
    # Sockets lie in it, and their paths must be short.
    folder = tempfile.mkdtemp(prefix="ray-")
    # Where Ray notes the address of the latest cluster; by default among the files of the user's other ones.
    os.environ["RAY_TMPDIR"] = folder
    os.mkdir(f"{folder}/ray")
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "temp_dir": folder})
    added = []
    try:
        print(json.dumps(cluster.address), flush=True)
        for line in sys.stdin:
            if line.strip() == "exit":
                break
            if line.strip() == "add":
                added.append(cluster.add_node(**NODE))
            else:
                cluster.remove_node(added.pop(), allow_graceful=False)
            print(json.dumps(len(added)), flush=True)
    finally:
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


main()

# Runs 6.12's csum.py, which reads cfg.remote_ifname: lib/py/env.py sets it only in later kernels.
import os
import runpy
import sys

sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
from lib.py import NetDrvEpEnv

NetDrvEpEnv.remote_ifname = os.environ["REMOTE_IFNAME"]
runpy.run_path(sys.argv[0], run_name="__main__")

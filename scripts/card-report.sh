#!/bin/sh
# Collects what would help to compare the model with a real card: run it as root, with a card that cxkit bind
# has taken, and send the folder that it makes. It holds no serial numbers; the trace holds MAC addresses.
#
#	scripts/card-report.sh 0000:08:00.0
set -eu
address=${1:?the PCI address of a card that cxkit bind has taken}
cxkit=${CXKIT:-cxkit}
out=card-report-$(echo "$address" | tr ':.' '--')
mkdir -p "$out"
uname -srm >"$out/kernel"
grep -o 'iommu[^ ]*\|intel_iommu[^ ]*' /proc/cmdline >"$out/cmdline" || true
"$cxkit" devices --json >"$out/devices.json"
"$cxkit" caps --device "vfio:$address" --save "$out/caps.json"
"$cxkit" caps --device "vfio:$address" --diff sim:cx5 >"$out/differs-from-model" || true
"$cxkit" stat --device "vfio:$address" --json >"$out/counters.json"
"$cxkit" run --device "vfio:$address" --duration 5s --trace "$out/run.trace" --json -v >"$out/run.json" 2>"$out/run.log"
echo "$out"

#!/bin/sh
# Collects what would help to compare the model with a real card: run it as root, with a card that cxkit bind
# has taken, and send the folder that it makes. It holds no serial numbers; the trace holds MAC addresses.
#
#	scripts/card-report.sh ADDRESS [TIME]
#	scripts/card-report.sh 0000:08:00.0
#
# TIME is how long the run that is recorded takes, 5s unless it is given.
set -eu
address=${1:?the PCI address of a card that cxkit bind has taken}
time=${2:-5s}
case $address in
*:*:*) ;;
*) address=0000:$address ;;
esac
card=vfio:$address
[ "$(cat "/sys/bus/pci/devices/$address/iommu_group/name" 2>/dev/null)" != vfio-noiommu ] || card=vfio-noiommu:$address
# The model that is most like it.
case $(cat "/sys/bus/pci/devices/$address/device") in
0x1015 | 0x1016) model=cx4lx ;;
0x101d | 0x101e) model=cx6dx ;;
0x1021) model=cx7 ;;
0xa2d6) model=bf2 ;;
*) model=cx5 ;;
esac
cxkit=${CXKIT:-cxkit}
out=card-report-$(echo "$address" | tr ':.' '--')
mkdir -p "$out"
uname -srm >"$out/kernel"
grep -o 'iommu[^ ]*\|intel_iommu[^ ]*' /proc/cmdline >"$out/cmdline" || true
"$cxkit" devices --json >"$out/devices.json"
"$cxkit" caps --device "$card" --save "$out/caps.json"
"$cxkit" caps --device "$card" --diff "sim:$model" >"$out/differs-from-model" || true
"$cxkit" stat --device "$card" --json >"$out/counters.json"
"$cxkit" run --device "$card" --duration "$time" --trace "$out/run.trace" --json -v >"$out/run.json" 2>"$out/run.log"
echo "$out"

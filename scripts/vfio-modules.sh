#!/bin/sh
# Builds the kernel's VFIO with what Debian leaves out, iommufd with its device files and no-IOMMU, as modules for the
# kernel 6.12 that cxkit vm --fetch brings, for tests of transport/vfio:
#
#	cxkit vm --patch examples/kernel/edits/reclaim-limit.sed --build # fetches compiler and headers
#	apt-get download linux-source-6.12 && dpkg-deb -x linux-source-6.12_*.deb . # of the kernel's version, without root
#	scripts/vfio-modules.sh usr/src/linux-source-6.12.tar.xz modules
#	CXKIT_VFIO_IOMMU=iommufd CXKIT_VFIO_MODULES=$PWD/modules CXKIT_VM=require go test -v -run VFIOInAGuest ./internal/vmtest
#
# It runs as root: the compiler that Debian used is in a root file system of cxkit's cache.
set -eu
source=${1:?the archive of the kernel source}
out=${2:?the folder for the modules}
root=${XDG_CACHE_HOME:-$HOME/.cache}/cxkit/vm/sources-6.12
release=$(basename "$root"/usr/src/linux-headers-6.12*-cloud-amd64 | sed s/linux-headers-//)
[ -d "$root/usr/src/linux-headers-$release" ] || { echo "no headers in $root: see the first command above" >&2; exit 1; }
build=$(mktemp -d "$root/tmp/vfio-XXXXXX")
trap 'rm -rf "$build"' EXIT
tar -xf "$source" -C "$build" --strip-components=1 --wildcards '*/drivers/vfio' '*/drivers/iommu/iommufd' '*/drivers/iommu/*.h' '*/lib/interval_tree.c'
vfio=$build/drivers/vfio
mv "$build/drivers/iommu/iommufd" "$vfio/"
mv "$build"/drivers/iommu/*.h "$vfio/"
# A function of the kernel's library that Debian's kernel is built without.
sed 's/^EXPORT_SYMBOL.*//' "$build/lib/interval_tree.c" >"$vfio/iommufd/span.c"
sed -i 's/^\tvfio_compat\.o$/\tvfio_compat.o span.o/' "$vfio/iommufd/Makefile"
sed -i '1a obj-m += iommufd/' "$vfio/Makefile"
in=${vfio#"$root"}
chroot "$root" make -j2 -C "/usr/src/linux-headers-$release" M="$in" CONFIG_IOMMUFD=m CONFIG_VFIO_DEVICE_CDEV=y \
	CONFIG_VFIO_NOIOMMU=y CONFIG_VFIO_MDEV= CONFIG_DEBUG_INFO_BTF_MODULES= \
	KCFLAGS="-g0 -DCONFIG_IOMMUFD_MODULE=1 -DCONFIG_VFIO_DEVICE_CDEV=1 -DCONFIG_VFIO_NOIOMMU=1 -DCONFIG_INTERVAL_TREE_SPAN_ITER=1" modules
mkdir -p "$out"
find "$vfio" -name '*.ko' -exec cp {} "$out/" \;
ls "$out"

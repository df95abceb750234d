package archtest

// Rules are what the tree is checked against.
type Rules struct {
	// Imports has a row for every folder with Go code.
	Imports []ImportRow
	// Modules has a row for every folder that may use other modules. Rows add up: what a folder may
	// use, the folders below it may use.
	Modules []ModuleRow
	// Unsafe are the folders where files named *_unsafe.go and *_unsafe_test.go may import unsafe.
	Unsafe []string
}

// ImportRow says what non-test files of some folders may import.
type ImportRow struct {
	// Folders are the row's folders, each with all below it unless a longer row takes those. They may
	// import one another.
	Folders []string
	// May are the folders they may import, each with all below it. Any means every folder but those
	// in Never.
	May   []string
	Any   bool
	Never []string
}

// ModuleRow says which other modules files of a folder may import.
type ModuleRow struct {
	Folder  string // "" is everything
	Modules []string
	Tests   bool // the row is for test files
}

// Design returns the rules of ARCHITECTURE.md.
func Design() Rules {
	return Rules{
		Imports: []ImportRow{
			{Folders: []string{"prm"}},
			{Folders: []string{"mmio"}},
			{Folders: []string{"dma"}, May: []string{"mmio"}},
			{Folders: []string{"stats"}},
			{Folders: []string{"pci"}, May: []string{"dma", "mmio"}},
			{Folders: []string{"trace"}, May: []string{"prm"}},
			{Folders: []string{"driver"}, May: []string{"prm", "mmio", "dma", "pci", "trace", "stats"}},
			{Folders: []string{"device"}, May: []string{"prm", "dma", "pci", "trace", "stats"}},
			{Folders: []string{"transport"}, May: []string{"mmio", "dma", "pci"}},
			{Folders: []string{"metrics"}, May: []string{"prm", "trace", "stats"}},
			// drivertest also runs against cards it can't see into: never device.
			{Folders: []string{"drivertest"}, May: []string{"driver", "prm", "pci", "dma", "trace", "stats"}},
			{
				Folders: []string{"internal/rig", "internal/control", "internal/plan", "sim"},
				May:     []string{"driver", "device", "transport", "drivertest", "prm", "pci", "dma", "trace", "stats"},
			},
			{
				Folders: []string{"internal/vmtest"},
				May:     []string{"internal/rig", "internal/control", "internal/plan", "device", "transport", "trace"},
			},
			{
				Folders: []string{"lab"},
				May: []string{
					"internal/rig", "internal/control", "internal/plan", "driver", "device", "prm", "trace", "stats", "metrics",
				},
			},
			{Folders: []string{"cmd"}, Any: true, Never: []string{"internal/archtest"}},
			{Folders: []string{"internal/archtest"}},
			// Studies of Linux's own driver use cxkit's commands as anybody would, and nothing behind them.
			{Folders: []string{"examples"}},
			// Programs that people run by hand, each a file of its own.
			{Folders: []string{"scripts"}, Any: true, Never: []string{"internal/archtest"}},
		},
		Modules: []ModuleRow{
			{Folder: "dma", Modules: []string{"golang.org/x/sys"}},
			{Folder: "mmio", Modules: []string{"golang.org/x/sys"}},
			{Folder: "pci", Modules: []string{"golang.org/x/sys"}},
			{Folder: "prm", Modules: []string{"golang.org/x/sys"}},
			{Folder: "trace", Modules: []string{"golang.org/x/sys"}},
			{Folder: "driver", Modules: []string{"golang.org/x/sys"}},
			{Folder: "device", Modules: []string{"golang.org/x/sys"}},
			{Folder: "transport", Modules: []string{"golang.org/x/sys"}},
			{Folder: "examples", Modules: []string{"golang.org/x/sys"}},
			{Folder: "device/wire/capture", Modules: []string{"github.com/gopacket/gopacket"}},
			{Folder: "internal/control", Modules: []string{"golang.org/x/sys"}},
			{Folder: "internal/plan", Modules: []string{"github.com/pelletier/go-toml/v2"}},
			{Folder: "lab", Modules: []string{"github.com/HdrHistogram/hdrhistogram-go"}},
			// client_model has the types of client_golang's interface Metric.
			{Folder: "metrics", Modules: []string{"github.com/prometheus/client_golang", "github.com/prometheus/client_model"}},
			{Folder: "cmd", Modules: []string{
				"charm.land/bubbletea/v2", "github.com/alecthomas/kong", "github.com/gopacket/gopacket", "golang.org/x/sys", "golang.org/x/term",
			}},
			{Folder: "", Tests: true, Modules: []string{
				"github.com/gopacket/gopacket", "github.com/rogpeppe/go-internal", "golang.org/x/sys", "pgregory.net/rapid",
			}},
		},
		Unsafe: []string{"dma", "mmio", "transport"},
	}
}

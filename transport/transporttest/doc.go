// Package transporttest is what every pci.Function must do, as a library of named tests, and the card that
// they run against.
//
// A transport's own test plugs a Card in behind it and runs the suite:
//
//	func TestFunction(t *testing.T) {
//		transporttest.Run(t, transporttest.Options{
//			Open:  func(t testing.TB) pci.Function { return plug(t, transporttest.NewCard()) },
//			Kinds: []dma.Kind{dma.Shared, dma.Reserved},
//		})
//	}
//
// The suite sees the card through the function only, so that the card may be in another process. Card is a
// small endpoint: registers that keep and count what is written, a DMA engine that copies, fills and sums
// on command, vectors raised on command, and a configuration space with PM, PCIe and MSI-X capabilities.
package transporttest

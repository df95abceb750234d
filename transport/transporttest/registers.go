package transporttest

// The registers of a Card, all big endian. BAR 0 has them, the MSI-X table and the pending bits; BAR 2 is
// 4 KiB of plain memory. Other BARs are absent.
const (
	bar0Size = 0x8000
	bar2Size = 0x1000

	msixTable = 0x4000
	msixPBA   = 0x6000

	// Vectors is how many MSI-X vectors a Card has.
	Vectors = 24

	regID      = 0x000 // reads cardID
	regScratch = 0x040 // scratchSize bytes that keep what is written, at any width
	regAppend  = 0x104 // appends what is written to the log
	regLogLen  = 0x108 // entries in the log
	regLogAt   = 0x10c // which entry regLog reads
	regLog     = 0x110

	// Arguments of the next command; writing regCommand starts it.
	regSource  = 0x200 // 8 bytes: a bus address
	regDest    = 0x208 // 8 bytes: a bus address
	regLength  = 0x210
	regArg     = 0x214
	regNotify  = 0x218 // vector to raise at the end
	regCommand = 0x21c

	regDone   = 0x220 // commands that have ended
	regStatus = 0x224 // of the last one
	regValue  = 0x228 // 8 bytes: its result
	regLeft   = 0x230 // steps of cmdHold that have ended
	regResets = 0x234 // function level resets since power-on
	regLast   = 0x238

	cardID      = 0x54435244 // "TCRD"
	scratchSize = 0x40
	logMax      = 1 << 16
	queueMax    = 1 << 10
)

// Commands.
const (
	cmdNothing = iota
	cmdFill    // dest..+length = arg's low byte, through a View
	cmdSum     // value = sum of source..+length, through a View
	cmdCopy    // source to dest, through Views
	cmdFillAt  // as cmdFill, with WriteAt
	cmdSumAt   // as cmdSum, with ReadAt
	cmdRaise   // raises vector source length times
	cmdHold    // fills dest..+length with arg, over and over for holdTime, in one step
	cmdGen     // value = Generation
	cmdKeep    // keeps the View of dest..+length and its generation
	cmdUseKept // fills the kept View with arg if the generation is still the same
	cmdPublish // writes arg to each byte of dest+4..+length, then the word arg to dest
)

// Status of a command.
const (
	statusOK       = 0
	statusNoView   = 1 // View returned nil
	statusDMAError = 2 // ReadAt or WriteAt returned a *pci.DMAError
	statusStale    = 3 // the kept View is of an older generation
	statusVanished = 4 // memory went away under the step
	statusOdd      = 5 // an error of another type, or a View of another length than asked
)

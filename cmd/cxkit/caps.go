package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"cxkit/driver"
	"cxkit/pci"
	"cxkit/prm"
	"cxkit/prm/prmtext"
)

// capsCommand is `cxkit caps`.
type capsCommand struct {
	Device  string `default:"sim:cx5" placeholder:"DEVICE" help:"Card to look at: ${targets} (default ${default})."`
	Save    string `placeholder:"FILE" type:"path" help:"Write what was read to a file instead of printing it."`
	Diff    string `placeholder:"WHAT" help:"Print where the card differs from WHAT: a file that --save wrote, or another device, for example sim:cx5."`
	All     bool   `help:"Print fields that are zero too."`
	Verbose int    `short:"v" type:"counter" help:"Log what the driver would log; twice for more."`
}

// Help is what cxkit caps --help adds.
func (capsCommand) Help() string {
	return `Reads a card's capabilities (most and current values), the registers that only describe it, and its PCI
configuration space, field by field. --diff shows where two cards differ: where the model differs from a real
card, for example. Serial numbers and addresses are left out of what is saved.

Examples:
  cxkit caps --device vfio:0000:08:00.0 --save card.json
  cxkit caps --device vfio:0000:08:00.0 --diff sim:cx5
  cxkit caps --device sim:cx6dx --diff card.json

Exit codes: 0 done and, with --diff, nothing differs; 1 something differs, or failed; 2 wrong usage.`
}

// capsFile is what --save writes. Parts are added, never changed.
type capsFile struct {
	Device   string `json:"device"`
	Model    string `json:"model"`
	Firmware string `json:"firmware"`
	PSID     string `json:"psid"`
	// Parts are in the order in which they were read.
	Parts []capsPart `json:"parts"`
}

// capsPart is one structure of a card.
type capsPart struct {
	Name    string `json:"name"`              // "general capabilities, maximum", "register PCAP"
	Layout  string `json:"layout,omitempty"`  // its structure in package prm, "" for none
	Bytes   string `json:"bytes,omitempty"`   // hexadecimal, without zeros at the end
	Refused string `json:"refused,omitempty"` // the firmware's answer instead
}

// maxCaps bounds a file that is read.
const maxCaps = 16 << 20

// Run reads and prints, saves or compares.
func (c *capsCommand) Run(w *world) error {
	if c.Save != "" && c.Diff != "" {
		return usagef("--save and --diff: give one of them")
	}
	mine, err := c.read(w, c.Device)
	if err != nil {
		return err
	}
	switch {
	case c.Save != "":
		return saveCaps(c.Save, mine)
	case c.Diff != "":
		theirs, err := c.other(w)
		if err != nil {
			return err
		}
		return diffCaps(w.out, mine, theirs)
	}
	for _, p := range mine.Parts {
		if err := c.print(w.out, p); err != nil {
			return err
		}
	}
	return nil
}

// other is what --diff names.
func (c *capsCommand) other(w *world) (*capsFile, error) {
	_, notDevice := parseTarget(c.Diff)
	if notDevice == nil {
		return c.read(w, c.Diff)
	}
	f, err := os.Open(c.Diff)
	if errors.Is(err, os.ErrNotExist) && strings.Contains(c.Diff, ":") {
		return nil, notDevice // meant as a device, most likely
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	saved, err := loadCaps(f)
	if err != nil {
		return nil, fmt.Errorf("%s: no file of cxkit caps --save: %w", c.Diff, err)
	}
	return saved, nil
}

// loadCaps reads a file, which may come from anybody.
func loadCaps(r io.Reader) (*capsFile, error) {
	var c capsFile
	if err := json.NewDecoder(io.LimitReader(r, maxCaps)).Decode(&c); err != nil {
		return nil, err
	}
	if len(c.Parts) == 0 {
		return nil, errors.New("it has no parts")
	}
	texts := []string{c.Device, c.Model, c.Firmware, c.PSID}
	seen := make(map[string]bool)
	for _, p := range c.Parts {
		if p.Name == "" || seen[p.Name] {
			return nil, fmt.Errorf("part %q is there twice, or has no name", p.Name)
		}
		seen[p.Name] = true
		texts = append(texts, p.Name, p.Layout, p.Bytes, p.Refused)
	}
	for _, text := range texts { // a terminal would obey some
		if strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
			return nil, fmt.Errorf("%.40q: control characters", text)
		}
	}
	return &c, nil
}

func saveCaps(path string, c *capsFile) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(writeJSON(f, c), f.Close())
}

// print prints one part field by field.
func (c *capsCommand) print(out io.Writer, p capsPart) error {
	if p.Refused != "" {
		_, err := fmt.Fprintf(out, "%s: refused: %s\n", p.Name, p.Refused)
		return err
	}
	record, err := p.record()
	if err != nil {
		return err
	}
	if record == nil {
		_, err = fmt.Fprintf(out, "%s: %s\n", p.Name, p.Bytes)
		return err
	}
	record.Title = p.Name
	_, err = io.WriteString(out, record.Text(prmtext.Options{All: c.All}))
	return err
}

// record decodes a part; nil if its structure has no table.
func (p capsPart) record() (*prmtext.Record, error) {
	l := prm.LayoutByName(p.Layout)
	if p.Layout == "" || l == nil {
		return nil, nil
	}
	b, err := hex.DecodeString(p.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	if len(b) > 4096 {
		return nil, fmt.Errorf("%s: %d bytes", p.Name, len(b))
	}
	return prmtext.DecodeStruct(p.Layout, append(b, make([]byte, max(0, l.Size-len(b)))...))
}

// read brings a card up, reads, and takes it down. What firmware refuses is a result here, and logged with -v only.
func (c *capsCommand) read(w *world, device string) (all *capsFile, err error) {
	err = withNIC(w, device, c.Verbose-1, func(f pci.Function, nic *driver.NIC) error {
		info := nic.Info()
		all = &capsFile{
			Device: fmt.Sprintf("%04x:%04x", info.VendorID, info.DeviceID), Model: info.Model, Firmware: info.Firmware.String(), PSID: info.PSID,
		}
		for _, group := range capGroups() {
			for _, mode := range []prm.CapMode{prm.CapMax, prm.CapCurrent} {
				all.Parts = append(all.Parts, readCap(w.ctx, nic, group, mode))
			}
		}
		for _, id := range describing() {
			all.Parts = append(all.Parts, readRegister(w.ctx, nic, id))
		}
		config, err := readConfigSpace(f)
		all.Parts = append(all.Parts, config...)
		return errors.Join(err, w.ctx.Err())
	})
	return all, err
}

// capGroups are the groups that there are.
func capGroups() []prm.CapGroup {
	var all []prm.CapGroup
	for v := range uint64(0x40) {
		if _, known := prm.EnumText("CapGroup", v); known {
			all = append(all, prm.CapGroup(v))
		}
	}
	return all
}

func readCap(ctx context.Context, nic *driver.NIC, group prm.CapGroup, mode prm.CapMode) capsPart {
	p := capsPart{Name: fmt.Sprintf("%v capabilities, %v", group, mode), Layout: capLayout(group)}
	var out prm.QueryHCACapOut
	if err := nic.Exec(ctx, &prm.QueryHCACapIn{OpMod: prm.CapOpMod(group, mode)}, &out); err != nil {
		p.Refused = refusal(err)
		return p
	}
	p.Bytes = trimmed(out.Capability[:])
	return p
}

// capLayout is the structure of a group.
func capLayout(group prm.CapGroup) string {
	switch group {
	case prm.CapGroupGeneral:
		return "CapGeneral"
	case prm.CapGroupGeneral2:
		return "CapGeneral2"
	case prm.CapGroupEthernetOffloads:
		return "CapEthernetOffloads"
	case prm.CapGroupFlowTable:
		return "CapFlowTable"
	case prm.CapGroupESwitch:
		return "CapESwitch"
	case prm.CapGroupQOS:
		return "CapQOS"
	case prm.CapGroupRoCE:
		return "CapRoCE"
	case prm.CapGroupDebug:
		return "CapDebug"
	case prm.CapGroupODP:
		return "CapODP"
	}
	return ""
}

// describing are the registers that say what a card is, and do not change by themselves.
func describing() []prm.RegisterID {
	return []prm.RegisterID{
		prm.RegIDPCAP, prm.RegIDPMLP, prm.RegIDPMTU, prm.RegIDPTYS, prm.RegIDPFCC, prm.RegIDPPLM, prm.RegIDPCAM, prm.RegIDQCAM,
		prm.RegIDMCAM, prm.RegIDMTCAP, prm.RegIDMPEIN, prm.RegIDDTOR,
	}
}

func readRegister(ctx context.Context, nic *driver.NIC, id prm.RegisterID) capsPart {
	p := capsPart{Name: fmt.Sprintf("register %v", id)}
	r := prm.RegisterByID(id)
	if r == nil {
		p.Refused = "no table"
		return p
	}
	p.Layout = r.Layout.Name
	in := prm.AccessRegIn{OpMod: uint16(prm.AccessRegRead), RegisterID: id, RegisterData: make([]byte, r.Layout.Size)}
	switch id {
	case prm.RegIDPCAP, prm.RegIDPMLP, prm.RegIDPMTU, prm.RegIDPTYS, prm.RegIDPFCC, prm.RegIDPPLM:
		in.RegisterData[1] = 1 // local_port
	}
	if id == prm.RegIDPTYS {
		in.RegisterData[3] = 1 << 2 // proto_mask: Ethernet
	}
	out := prm.AccessRegOut{RegisterData: make([]byte, r.Layout.Size)}
	if err := nic.Exec(ctx, &in, &out); err != nil {
		p.Refused = refusal(err)
		return p
	}
	p.Bytes = trimmed(out.RegisterData)
	return p
}

// readConfigSpace is the standard header and each capability. BARs and the interrupt line are the machine's.
func readConfigSpace(f pci.Function) ([]capsPart, error) {
	space := make([]byte, 4096)
	if err := f.ReadConfig(0, space); err != nil {
		return nil, err
	}
	header := slices.Clone(space[:0x40])
	clear(header[0x04:0x08])
	clear(header[0x0c:0x28])
	clear(header[0x30:0x34])
	header[0x3c] = 0
	parts := []capsPart{{Name: configHeader, Bytes: trimmed(header)}}
	at := int(space[0x34]) &^ 3
	for range 48 {
		if at < 0x40 || at >= 0x100 {
			break
		}
		parts = append(parts, capsPart{Name: fmt.Sprintf("config capability %#02x", space[at]), Bytes: fmt.Sprintf("at %#x", at)})
		at = int(space[at+1]) &^ 3
	}
	at = 0x100
	for range 64 {
		h := uint32(space[at]) | uint32(space[at+1])<<8 | uint32(space[at+2])<<16 | uint32(space[at+3])<<24
		if h == 0 || h == 0xffffffff {
			break
		}
		parts = append(parts, capsPart{Name: fmt.Sprintf("config extended capability %#04x", h&0xffff), Bytes: fmt.Sprintf("version %d at %#x", h>>16&0xf, at)})
		if at = int(h>>20) &^ 3; at < 0x100 {
			break
		}
	}
	return parts, nil
}

// refusal is the firmware's status, which says more about a card than the error around it.
func refusal(err error) string {
	var refused *prm.CommandError
	if errors.As(err, &refused) {
		return refused.Status.String()
	}
	return err.Error()
}

// trimmed is hexadecimal without zeros at the end.
func trimmed(b []byte) string { return hex.EncodeToString(b[:lastNonZero(b)]) }

func lastNonZero(b []byte) int {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return n
}

// errDiffers: cards differ, which the exit code says too.
var errDiffers = errors.New("the cards differ")

// diffCaps prints the differences between two cards.
func diffCaps(out io.Writer, a, b *capsFile) error {
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	differs := 0
	row := func(part, field, x, y string) {
		if differs == 0 {
			fmt.Fprintf(t, "PART\tFIELD\t%s %s\t%s %s\n", a.Model, a.Firmware, b.Model, b.Firmware)
		}
		differs++
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", part, field, x, y)
	}
	others := make(map[string]capsPart, len(b.Parts))
	for _, p := range b.Parts {
		others[p.Name] = p
	}
	for _, p := range a.Parts {
		o, ok := others[p.Name]
		delete(others, p.Name)
		switch {
		case !ok:
			row(p.Name, "", "there", "not there")
		case p.Refused != o.Refused:
			row(p.Name, "", answered(p), answered(o))
		case p.Bytes != o.Bytes:
			if err := diffPart(p, o, row); err != nil {
				return err
			}
		}
	}
	for _, p := range b.Parts {
		if _, ok := others[p.Name]; ok {
			row(p.Name, "", "not there", "there")
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if differs > 0 {
		return fmt.Errorf("%w in %d places", errDiffers, differs)
	}
	return nil
}

func answered(p capsPart) string {
	if p.Refused == "" {
		return "answered"
	}
	return p.Refused
}

// diffPart compares two parts field by field.
func diffPart(p, o capsPart, row func(part, field, x, y string)) error {
	x, err := p.record()
	if err != nil {
		return err
	}
	y, err := o.record()
	if err != nil {
		return err
	}
	if x == nil || y == nil {
		if p.Name == configHeader {
			return diffHeader(p, o, row)
		}
		row(p.Name, "", p.Bytes, o.Bytes)
		return nil
	}
	values := make(map[string]string, len(y.Fields))
	for i := range y.Fields {
		values[fieldName(&y.Fields[i])] = fieldValue(&y.Fields[i])
	}
	for i := range x.Fields {
		f := &x.Fields[i]
		name := fieldName(f)
		if v := values[name]; !f.Alias && v != fieldValue(f) {
			row(p.Name, name, fieldValue(f), orDash(v))
		}
		delete(values, name)
	}
	for i := range y.Fields {
		f := &y.Fields[i]
		if v, ok := values[fieldName(f)]; ok && !f.Alias && f.Reserved {
			row(p.Name, fieldName(f), "-", v)
		}
	}
	return nil
}

const configHeader = "config header"

// headerField is a field of configuration space's standard header (PCI Local Bus Specification 3.0, 6.1).
type headerField struct {
	name      string
	off, size int
}

func headerFields() []headerField {
	return []headerField{
		{"vendor id", 0x00, 2}, {"device id", 0x02, 2}, {"revision", 0x08, 1}, {"class", 0x09, 3}, {"header type", 0x0e, 1},
		{"subsystem vendor id", 0x2c, 2}, {"subsystem id", 0x2e, 2}, {"capabilities pointer", 0x34, 1}, {"interrupt pin", 0x3d, 1},
	}
}

// diffHeader compares two headers field by field, and what no field names byte by byte.
func diffHeader(p, o capsPart, row func(part, field, x, y string)) error {
	var headers [2][0x40]byte
	for i, part := range []capsPart{p, o} {
		b, err := hex.DecodeString(part.Bytes)
		if err != nil || len(b) > len(headers[i]) {
			return fmt.Errorf("%s: %q is no header", part.Name, part.Bytes)
		}
		copy(headers[i][:], b)
	}
	compare := func(name string, off, size int) {
		var v [2]uint32
		for i := range v {
			for j := range size { // little endian
				v[i] |= uint32(headers[i][off+j]) << (8 * j)
				headers[i][off+j] = 0
			}
		}
		if v[0] != v[1] {
			row(p.Name, name, fmt.Sprintf("%#x", v[0]), fmt.Sprintf("%#x", v[1]))
		}
	}
	for _, f := range headerFields() {
		compare(f.name, f.off, f.size)
	}
	for off := range headers[0] {
		compare(fmt.Sprintf("byte %#x", off), off, 1)
	}
	return nil
}

// fieldName is a field's PRM name; bits that no table names go by their place.
func fieldName(f *prmtext.Field) string {
	if f.Reserved || f.Path == "" {
		return f.Position()
	}
	return f.Path
}

func fieldValue(f *prmtext.Field) string {
	if f.Bytes != nil {
		return hex.EncodeToString(f.Bytes)
	}
	return fmt.Sprintf("%#x", f.Value)
}

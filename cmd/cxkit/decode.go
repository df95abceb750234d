package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"cxkit/prm"
	"cxkit/prm/prmtext"
	"cxkit/trace"
)

// decodeCommand is `cxkit decode`.
type decodeCommand struct {
	File string `arg:"" optional:"" type:"path" help:"File to read (default: standard input)."`
	As   string `placeholder:"WHAT" help:"The input is one structure in hexadecimal: in (a command), eqe, cqe, send-wqe, receive-wqe, or a name that --list prints."`
	List bool   `help:"List the structures that --as knows."`
	All  bool   `help:"Print fields that are zero too."`
}

// Help is what cxkit decode --help adds.
func (decodeCommand) Help() string {
	return `Reads command dumps as mlx5_core prints them (a piece of dmesg is fine), a trace that cxkit run --trace
or cxkit ctl trace wrote, or with --as the bytes of one structure.

Examples:
  dmesg | cxkit decode
  cxkit decode boot.trace
  echo 04000000 00000000 | cxkit decode --as in
  cxkit decode --as CQContext --all context.txt`
}

// maxText bounds what is read, in bytes.
const maxText = 256 << 20

// Run decodes. What can be read before a mistake is printed.
func (d *decodeCommand) Run(w *world) error {
	if d.List {
		for _, name := range prm.LayoutNames() {
			fmt.Fprintln(w.out, name)
		}
		return nil
	}
	text, err := d.read(w)
	if err != nil {
		return err
	}
	p := &decoder{out: w.out, opts: prmtext.Options{All: d.All}}
	if d.All {
		p.opts.MaxList = -1
	}
	switch {
	case d.As != "":
		return p.structure(d.As, text)
	case looksLikeTrace(text):
		return p.trace(text)
	}
	return p.dumps(text)
}

func (d *decodeCommand) read(w *world) ([]byte, error) {
	in := w.in
	if d.File != "" && d.File != "-" {
		f, err := os.Open(d.File)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxText+1))
	if err == nil && len(text) > maxText {
		err = fmt.Errorf("input is longer than %d bytes", maxText)
	}
	return text, err
}

// looksLikeTrace tells our own traces from a kernel's log, whose lines may begin with a time too.
func looksLikeTrace(text []byte) bool {
	line, _, _ := bytes.Cut(bytes.TrimLeft(text, " \r\n"), []byte("\n"))
	s := string(line)
	return strings.HasPrefix(s, "# cxkit trace") || strings.HasPrefix(s, "[") &&
		(strings.Contains(s, "] driver ") || strings.Contains(s, "] device "))
}

// decoder prints decoded records.
type decoder struct {
	out  io.Writer
	opts prmtext.Options
}

func (p *decoder) print(r *prmtext.Record, err error) error {
	if err != nil {
		return err
	}
	_, err = io.WriteString(p.out, r.Text(p.opts))
	return err
}

// structure decodes the bytes of one structure.
func (p *decoder) structure(as string, text []byte) error {
	b, err := prmtext.ParseHex(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if len(b) == 0 {
		return errors.New("decode: no bytes")
	}
	switch as {
	case "in":
		return p.print(prmtext.DecodeInput(b))
	case "out":
		return usagef("--as out: an output does not say which command it belongs to; give its dump, or --as NAME of the structure")
	case "eqe":
		return p.print(prmtext.DecodeEQE(b))
	case "cqe":
		return p.print(prmtext.DecodeCQE(b))
	case "send-wqe":
		return p.print(prmtext.DecodeSendWQE(b))
	case "receive-wqe":
		return p.print(prmtext.DecodeReceiveWQE(b, false))
	}
	if prm.LayoutByName(as) == nil {
		return usagef("--as %s: no such structure; cxkit decode --list names them", as)
	}
	return p.print(prmtext.DecodeStruct(as, b))
}

// dumps decodes a kernel's log.
func (p *decoder) dumps(text []byte) error {
	dumps, err := prmtext.Parse(bytes.NewReader(text))
	inputs := map[int]*prmtext.Dump{} // the latest input of each slot
	for _, d := range dumps {
		var in *prmtext.Dump
		if d.Output {
			if in = inputs[d.Slot]; in != nil && in.Opcode() != d.Opcode() {
				in = nil
			}
		} else {
			inputs[d.Slot] = d
		}
		if derr := p.print(d.Decode(in)); derr != nil {
			fmt.Fprintf(p.out, "%v\n", derr)
		}
		if d.Cut() {
			fmt.Fprintln(p.out, "  (the dump holds less than the command's length)")
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("decode: %w", err)
	case len(dumps) == 0:
		return errors.New("decode: no command dump found; for the bytes of one structure say which with --as")
	}
	return nil
}

// trace decodes a trace of our own.
func (p *decoder) trace(text []byte) error {
	records, err := trace.Read(bytes.NewReader(text))
	inputs := map[int]trace.Record{}
	for _, rec := range records {
		if derr := p.record(rec, inputs); derr != nil {
			return derr
		}
	}
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

// record prints a record: its first line, and what its data mean.
func (p *decoder) record(rec trace.Record, inputs map[int]trace.Record) error {
	head, _, _ := strings.Cut(rec.String(), "\n")
	if _, err := fmt.Fprintln(p.out, head); err != nil {
		return err
	}
	var r *prmtext.Record
	var err error
	switch {
	case len(rec.Data) == 0:
	case rec.Kind == trace.CommandIn:
		inputs[rec.Slot] = rec
		r, err = prmtext.DecodeInput(rec.Data)
	case rec.Kind == trace.CommandOut:
		in := inputs[rec.Slot]
		if in.Kind != trace.CommandIn || in.Opcode != rec.Opcode {
			in.Data = []byte{byte(rec.Opcode >> 8), byte(rec.Opcode), 0, 0}
		}
		r, err = prmtext.DecodeOutput(in.Data, rec.Data)
	case rec.Kind == trace.Event:
		r, err = prmtext.DecodeEQE(rec.Data)
	}
	if err != nil {
		_, err = fmt.Fprintf(p.out, "  (%v)\n", err)
		return err
	}
	if r != nil {
		if err := p.print(r, nil); err != nil {
			return err
		}
	}
	if rec.Kind != trace.Note && rec.Text != "" {
		_, err = fmt.Fprintf(p.out, "  why: %s\n", rec.Text)
	}
	return err
}

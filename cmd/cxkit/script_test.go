package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"cxkit/device/wire/capture"
	"cxkit/internal/control"
)

// exits CODE PROGRAM ARGS...: runs a program and wants that exit code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// pcap FILE LINKTYPE FRAME...: writes a capture. A frame is LENGTH, LENGTH/ORIGINAL if the capture cut
// it short, and may be followed by @MAC, its destination (ff:ff:ff:ff:ff:ff if not given).
func cmdPcap(ts *testscript.TestScript, neg bool, args []string) {
	link, err := strconv.ParseUint(args[1], 10, 32)
	ts.Check(err)
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b23c4d) // nanoseconds
	b = le.AppendUint32(b, 4<<16|2)
	b = append(b, make([]byte, 8)...)
	b = le.AppendUint32(b, 1<<18)
	b = le.AppendUint32(b, uint32(link))
	for i, spec := range args[2:] {
		spec, mac, _ := strings.Cut(spec, "@")
		length, original, cut := strings.Cut(spec, "/")
		n, err := strconv.Atoi(length)
		ts.Check(err)
		wire := n
		if cut {
			wire, err = strconv.Atoi(original)
			ts.Check(err)
		}
		dst := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		if mac != "" {
			dst, err = net.ParseMAC(mac)
			ts.Check(err)
		}
		frame := append(append([]byte{}, dst...), 2, 0, 0, 0, 0, 9, 0x88, 0xb5)
		for len(frame) < n {
			frame = append(frame, byte(i+len(frame)))
		}
		b = le.AppendUint32(b, uint32(i))
		b = le.AppendUint32(b, 0)
		b = le.AppendUint32(b, uint32(n))
		b = le.AppendUint32(b, uint32(wire))
		b = append(b, frame[:n]...)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o644))
}

// cut FILE SIZE: shortens a file.
func cmdCut(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.ParseInt(args[1], 0, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}

// poke FILE OFFSET HEX: overwrites bytes of a file.
func cmdPoke(ts *testscript.TestScript, neg bool, args []string) {
	off, err := strconv.ParseInt(args[1], 0, 64)
	ts.Check(err)
	p, err := hex.DecodeString(args[2])
	ts.Check(err)
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_WRONLY, 0)
	ts.Check(err)
	_, err = f.WriteAt(p, off)
	ts.Check(errors.Join(err, f.Close()))
}

// framesOf reads all frames of a capture.
func framesOf(ts *testscript.TestScript, path string) [][]byte {
	f, err := os.Open(ts.MkAbs(path))
	ts.Check(err)
	defer f.Close()
	r, err := capture.NewReader(path, f)
	ts.Check(err)
	var frames [][]byte
	for {
		fr, err := r.Next()
		if err == io.EOF {
			return frames
		}
		ts.Check(err)
		frames = append(frames, bytes.Clone(fr.Data))
	}
}

// sameframes [-flows] PLAYED RECORDED: every frame of PLAYED is in RECORDED, byte for byte and in order;
// frames below 60 bytes may be padded with zeros to 60. With -flows only frames of the same pair of
// addresses and ports keep their order.
func cmdSameFrames(ts *testscript.TestScript, neg bool, args []string) {
	flows := args[0] == "-flows"
	if flows {
		args = args[1:]
	}
	played, recorded := framesOf(ts, args[0]), framesOf(ts, args[1])
	if len(played) == 0 || len(played) != len(recorded) {
		ts.Fatalf("%d frames played, %d recorded", len(played), len(recorded))
	}
	queues := map[string][][]byte{}
	key := func(f []byte) string {
		if !flows {
			return ""
		}
		return flowOf(f)
	}
	for _, f := range recorded {
		queues[key(f)] = append(queues[key(f)], f)
	}
	for i, f := range played {
		q := queues[key(f)]
		if len(q) == 0 {
			ts.Fatalf("frame %d is missing: %x", i, f)
		}
		if !samePadded(f, q[0]) {
			ts.Fatalf("frame %d differs:\nplayed   %x\nrecorded %x", i, f, q[0])
		}
		queues[key(f)] = q[1:]
	}
}

// samePadded tells whether got is want, or want and zeros up to 60 bytes.
func samePadded(want, got []byte) bool {
	if !bytes.HasPrefix(got, want) {
		return false
	}
	rest := got[len(want):]
	return len(rest) == 0 || len(got) <= 60 && len(bytes.Trim(rest, "\x00")) == 0
}

// flowOf names a frame's flow: what is hashed, or the whole pair of MAC addresses.
func flowOf(f []byte) string {
	h := parse(f)
	switch {
	case h.ether == etherIPv4 && len(f) >= h.l3+20:
		key := string(f[h.l3+12 : h.l3+20])
		fragment := binary.BigEndian.Uint16(f[h.l3+6:])&0x3fff != 0
		if (h.ip == ipTCP || h.ip == ipUDP) && !fragment && len(f) >= h.l4+4 {
			key += string(f[h.l4 : h.l4+4])
		}
		return key
	case h.ether == etherIPv6 && len(f) >= h.l3+40:
		key := string(f[h.l3+8 : h.l3+40])
		if h.proto == protoTCP6 || h.proto == protoUDP6 {
			key += string(f[h.l4:min(h.l4+4, len(f))])
		}
		return key
	}
	return string(f[:12])
}

// json FILE PATH VALUE...: FILE is one JSON document and nothing else; each PATH (a.b.c) has that value.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	d.UseNumber()
	var doc any
	ts.Check(d.Decode(&doc))
	if d.More() {
		ts.Fatalf("more than one document in %s", args[0])
	}
	for i := 1; i+1 < len(args); i += 2 {
		v := doc
		for part := range strings.SplitSeq(args[i], ".") {
			m, ok := v.(map[string]any)
			if !ok || m[part] == nil {
				ts.Fatalf("%s: no %s", args[i], part)
			}
			v = m[part]
		}
		if fmt.Sprint(v) != args[i+1] {
			ts.Fatalf("%s is %v, want %s", args[i], v, args[i+1])
		}
	}
}

// running N: waits until N cards can be attached to.
func cmdRunning(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	// Another process makes the sockets: there is nothing to wait for but the sight of them.
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		paths, err := filepath.Glob(filepath.Join(ts.Getenv("XDG_RUNTIME_DIR"), "cxkit", "*.sock"))
		ts.Check(err)
		live := 0
		for _, p := range paths {
			if c, err := net.Dial("unix", p); err == nil {
				c.Close()
				live++
			}
		}
		if live == n {
			return
		}
	}
	ts.Fatalf("%d cards are not running within 20 s (in %s)", n, control.Dir())
}

// interrupttwice: Ctrl-C, and again at once, for the only program that runs in the background. That it ended
// at the first is no mistake.
func cmdInterruptTwice(ts *testscript.TestScript, neg bool, args []string) {
	running := ts.BackgroundCmds()
	if len(running) != 1 {
		ts.Fatalf("%d programs run in the background, want one", len(running))
	}
	ts.Check(running[0].Process.Signal(os.Interrupt))
	if err := running[0].Process.Signal(os.Interrupt); !errors.Is(err, os.ErrProcessDone) {
		ts.Check(err)
	}
}

// unprivileged CODE ARGS...: runs cxkit as a user without rights and wants that exit code. What it
// prints is in the script's file "output".
func cmdUnprivileged(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	cmd, err := withoutRights(args[1:])
	ts.Check(err)
	defer os.RemoveAll(filepath.Dir(cmd.Path))
	out, err := cmd.CombinedOutput()
	ts.Check(os.WriteFile(ts.MkAbs("output"), out, 0o644))
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d:\n%s", got, want, out)
	}
}

// copyOfCxkit puts this test binary, which is cxkit when called so, where every user can run it.
func copyOfCxkit() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "cx")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "cxkit")
	return path, errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, b, 0o755))
}

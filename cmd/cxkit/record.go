package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"cxkit/device/wire/capture"
)

// unreadTime is how long a run that is cut short goes on writing to a FIFO that nobody reads.
const unreadTime = 2 * time.Second

// openRecord opens the file of --record. What it holds stays until frames can come: a run that fails before
// that changes nothing.
func (s *session) openRecord(ctx context.Context) error {
	path := s.c.Record
	_, missing := os.Stat(path)
	f, err := await(ctx, func() (*os.File, error) {
		// For writing only: with a FIFO open for reading too, nobody would notice that its reader has gone.
		return os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	})
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return fmt.Errorf("record a capture: %w", err)
	}
	s.record = f
	s.writes(f)
	s.later("record", func() error {
		if s.recorder != nil {
			return s.recorder.Close()
		}
		err := f.Close()
		if errors.Is(missing, fs.ErrNotExist) {
			err = errors.Join(err, os.Remove(path))
		}
		return err
	})
	return nil
}

// beginRecord replaces what the file of --record holds.
func (s *session) beginRecord() error {
	if s.record == nil {
		return nil
	}
	info, err := s.record.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = s.record.Truncate(0)
	}
	if err != nil {
		return fmt.Errorf("record a capture: %w", err)
	}
	s.recorder, err = capture.NewRecorder(s.c.Record, s.record, "cxkit")
	return err
}

// writes notes a file that the run writes.
func (s *session) writes(f *os.File) {
	s.filesMu.Lock()
	defer s.filesMu.Unlock()
	s.files = append(s.files, f)
}

// hurry makes writes to files end soon: the run is cut short, and the reader of a FIFO may not read. Other
// files know no deadline, and do not block.
func (s *session) hurry() {
	s.filesMu.Lock()
	defer s.filesMu.Unlock()
	for _, f := range s.files {
		_ = f.SetWriteDeadline(time.Now().Add(unreadTime))
	}
}

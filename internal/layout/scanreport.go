package layout

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Scan results of a version are in the template's directory, under the content that was scanned:
//
//	<template uuid>/.scans/<content id>.json.gz
//
// The file is a compressed report. Its note, which lists show, is in the gzip header: it is read without the
// report, and one rename replaces both. The dot hides the directory from external scripts, which take every
// visible directory next to template.json for a version.

const (
	scansDir   = ".scans"
	scanSuffix = ".json.gz"

	// MaxNote is the longest note of a report in bytes.
	MaxNote = 2048
	// noteAt is the position of the note: ten bytes of the header, the length of the extra field, and the mark
	// and length of its only part. See RFC 1952, 2.3.
	noteAt   = 16
	noteMark = "BY"
)

// ErrNote is the error for a file that is not a report with a note.
var ErrNote = errors.New("the file is not a stored scan report")

func scansPath(id string) string { return path.Join(VMDir, id, scansDir) }

func scanPath(id, content string) string { return path.Join(scansPath(id), content+scanSuffix) }

// ScanDraft is a report that is being written and that readers do not see. One goroutine uses it, and ends it
// with Drop, also after Commit.
type ScanDraft struct {
	dir  *Dir
	id   string
	temp string
	file *os.File
	out  *bufio.Writer
	zip  *gzip.Writer
}

// DraftScan begins a report about a version of an existing template.
func (d *Dir) DraftScan(id string) (*ScanDraft, error) {
	if err := d.MkdirAll(scansPath(id)); err != nil {
		return nil, err
	}
	temp := path.Join(scansPath(id), rand.Text()+tempSuffix)
	d.Step("scan.create")
	file, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", temp, err)
	}
	s := &ScanDraft{dir: d, id: id, temp: temp, file: file, out: bufio.NewWriterSize(file, 64<<10)}
	s.zip = gzip.NewWriter(s.out)
	s.zip.Extra = append(s.zip.Extra, noteMark...)
	s.zip.Extra = binary.LittleEndian.AppendUint16(s.zip.Extra, MaxNote)
	s.zip.Extra = append(s.zip.Extra, bytes.Repeat([]byte(" "), MaxNote)...)
	return s, nil
}

// Write appends the next bytes of the report.
func (s *ScanDraft) Write(p []byte) (int, error) { return s.zip.Write(p) }

// Seal ends the report and makes it durable with its note, which does not end in a space.
func (s *ScanDraft) Seal(note []byte) error {
	if len(note) > MaxNote {
		return fmt.Errorf("the summary of a scan report has more than %d bytes", MaxNote)
	}
	err := s.zip.Close()
	if err == nil {
		err = s.out.Flush()
	}
	if err == nil {
		_, err = s.file.WriteAt(note, noteAt)
	}
	if err == nil {
		s.dir.Step("scan.sync")
		err = s.dir.Sync(s.file)
	}
	if err = errors.Join(err, s.file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", s.temp, err)
	}
	s.file = nil
	return nil
}

// Commit makes a sealed report the current one of a content, in place of an older one.
func (s *ScanDraft) Commit(content string) error {
	if !hexDigits(content, 64) {
		return fmt.Errorf("%q is not a content ID", content)
	}
	if err := s.dir.Replace("scan", s.temp, scanPath(s.id, content)); err != nil {
		return err
	}
	s.temp = ""
	return nil
}

// Drop removes an uncommitted draft.
func (s *ScanDraft) Drop() {
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
	if s.temp != "" {
		_ = s.dir.root.Remove(s.temp) // best effort: the next start removes leftovers too
		s.temp = ""
	}
}

// StoredScan is a report that is open for reading. It must be closed.
type StoredScan struct {
	Note []byte
	file *os.File
	zip  *gzip.Reader
}

// OpenScan opens the report about a content; fs.ErrNotExist when there is none.
func (d *Dir) OpenScan(id, content string) (*StoredScan, error) {
	if !hexDigits(content, 64) {
		return nil, fmt.Errorf("%q is not a content ID: %w", content, fs.ErrNotExist)
	}
	file, err := d.root.Open(scanPath(id, content))
	if err != nil {
		return nil, err
	}
	s := &StoredScan{file: file}
	if s.Note, err = readNote(file); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err == nil {
		s.zip, err = gzip.NewReader(bufio.NewReader(file))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", scanPath(id, content), err), file.Close())
	}
	return s, nil
}

// Read returns the next bytes of the report.
func (s *StoredScan) Read(p []byte) (int, error) { return s.zip.Read(p) }

// Close closes the file.
func (s *StoredScan) Close() error { return s.file.Close() }

// readNote reads the note at the beginning of a file.
func readNote(r io.Reader) ([]byte, error) {
	head := make([]byte, noteAt+MaxNote)
	if _, err := io.ReadFull(r, head); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, ErrNote
		}
		return nil, err
	}
	gzipped := head[0] == 0x1f && head[1] == 0x8b && head[2] == 8 && head[3] == 4 // deflate, with an extra field
	if !gzipped || binary.LittleEndian.Uint16(head[10:]) != 4+MaxNote || string(head[12:14]) != noteMark ||
		binary.LittleEndian.Uint16(head[14:]) != MaxNote {
		return nil, ErrNote
	}
	return bytes.TrimRight(head[noteAt:], " "), nil
}

// Scans returns the notes of a template's reports by their contents: an empty one where a file is damaged. It
// is nil if the template never had a report.
func (d *Dir) Scans(id string) (map[string][]byte, error) {
	entries, err := d.Names(scansPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list stored scan reports: %w", err)
	}
	notes := map[string][]byte{}
	for _, e := range entries {
		content, ok := strings.CutSuffix(e.Name(), scanSuffix)
		if !ok || !hexDigits(content, 64) {
			continue
		}
		notes[content] = nil
		if note, err := d.note(id, content); err == nil {
			notes[content] = note
		}
	}
	return notes, nil
}

func (d *Dir) note(id, content string) ([]byte, error) {
	file, err := d.root.Open(scanPath(id, content))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readNote(file)
}

// RemoveScan removes the report about a content permanently; a missing one is not an error.
func (d *Dir) RemoveScan(id, content string) error {
	if !hexDigits(content, 64) {
		return fmt.Errorf("%q is not a content ID", content)
	}
	if err := d.RemoveAll("unscan", scanPath(id, content)); err != nil {
		return err
	}
	d.Step("unscan.dirsync")
	if err := d.SyncDir(scansPath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = d.root.Remove(scansPath(id)) // fails while it has entries
	return nil
}

// PruneScans removes drafts that a crash left. No draft of the template may be in progress.
func (d *Dir) PruneScans(id string) error {
	entries, err := d.Names(scansPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list stored scan reports: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), tempSuffix) {
			if err := d.RemoveAll("tidy", path.Join(scansPath(id), e.Name())); err != nil {
				return err
			}
		}
	}
	_ = d.root.Remove(scansPath(id)) // fails while it has entries
	return nil
}

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

	// MaxNoteBytes is the longest note of a report in bytes.
	MaxNoteBytes = 2048
	// noteOffset is the position of the note: ten bytes of the header, the length of the extra field, and the mark
	// and length of its only part. See RFC 1952, 2.3.
	noteOffset  = 16
	noteFieldID = "BY"
)

// ErrNoNote is the error for a file that is not a report with a note.
var ErrNoNote = errors.New("the file is not a stored scan report")

func scanReportsPath(id string) string { return path.Join(TemplatesDir, id, scansDir) }

func scanReportPath(id, content string) string {
	return path.Join(scanReportsPath(id), content+scanSuffix)
}

// ScanDraft is a report that is being written and that readers do not see. One goroutine uses it, and ends it
// with Drop, also after Commit.
type ScanDraft struct {
	dir      *Dir
	id       string
	tempName string
	file     *os.File
	buffered *bufio.Writer
	gzip     *gzip.Writer
}

// CreateScanDraft begins a report about a version of an existing template.
func (d *Dir) CreateScanDraft(id string) (*ScanDraft, error) {
	if err := d.MkdirAll(scanReportsPath(id)); err != nil {
		return nil, err
	}
	temp := path.Join(scanReportsPath(id), rand.Text()+tempSuffix)
	d.AnnounceStep("scan.create")
	file, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", temp, err)
	}
	s := &ScanDraft{dir: d, id: id, tempName: temp, file: file, buffered: bufio.NewWriterSize(file, 64<<10)}
	s.gzip = gzip.NewWriter(s.buffered)
	s.gzip.Extra = append(s.gzip.Extra, noteFieldID...)
	s.gzip.Extra = binary.LittleEndian.AppendUint16(s.gzip.Extra, MaxNoteBytes)
	s.gzip.Extra = append(s.gzip.Extra, bytes.Repeat([]byte(" "), MaxNoteBytes)...)
	return s, nil
}

// Write appends the next bytes of the report.
func (s *ScanDraft) Write(p []byte) (int, error) { return s.gzip.Write(p) }

// Finish ends the report and makes it durable with its note, which does not end in a space.
func (s *ScanDraft) Finish(note []byte) error {
	if len(note) > MaxNoteBytes {
		return fmt.Errorf("the summary of a scan report has more than %d bytes", MaxNoteBytes)
	}
	err := s.gzip.Close()
	if err == nil {
		err = s.buffered.Flush()
	}
	if err == nil {
		_, err = s.file.WriteAt(note, noteOffset)
	}
	if err == nil {
		s.dir.AnnounceStep("scan.sync")
		err = s.dir.Sync(s.file)
	}
	if err = errors.Join(err, s.file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", s.tempName, err)
	}
	s.file = nil
	return nil
}

// Commit makes a sealed report the current one of a content, in place of an older one.
func (s *ScanDraft) Commit(content string) error {
	if !isHexOfLength(content, 64) {
		return fmt.Errorf("%q is not a content ID", content)
	}
	if err := s.dir.RenameInDir("scan", s.tempName, scanReportPath(s.id, content)); err != nil {
		return err
	}
	s.tempName = ""
	return s.dir.shareFile(scanReportPath(s.id, content))
}

// Discard removes an uncommitted draft.
func (s *ScanDraft) Discard() {
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
	if s.tempName != "" {
		_ = s.dir.root.Remove(s.tempName) // best effort: the next start removes leftovers too
		s.tempName = ""
	}
}

// ScanReport is a report that is open for reading. It must be closed.
type ScanReport struct {
	Note []byte
	file *os.File
	gzip *gzip.Reader
}

// OpenScanReport opens the report about a content; fs.ErrNotExist when there is none.
func (d *Dir) OpenScanReport(id, content string) (*ScanReport, error) {
	if !isHexOfLength(content, 64) {
		return nil, fmt.Errorf("%q is not a content ID: %w", content, fs.ErrNotExist)
	}
	file, err := d.root.Open(scanReportPath(id, content))
	if err != nil {
		return nil, err
	}
	s := &ScanReport{file: file}
	if s.Note, err = readNote(file); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err == nil {
		s.gzip, err = gzip.NewReader(bufio.NewReader(file))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", scanReportPath(id, content), err), file.Close())
	}
	return s, nil
}

// Read returns the next bytes of the report.
func (s *ScanReport) Read(p []byte) (int, error) { return s.gzip.Read(p) }

// Close closes the file.
func (s *ScanReport) Close() error { return s.file.Close() }

// readNote reads the note at the beginning of a file.
func readNote(r io.Reader) ([]byte, error) {
	head := make([]byte, noteOffset+MaxNoteBytes)
	if _, err := io.ReadFull(r, head); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, ErrNoNote
		}
		return nil, err
	}
	gzipped := head[0] == 0x1f && head[1] == 0x8b && head[2] == 8 && head[3] == 4 // deflate, with an extra field
	if !gzipped || binary.LittleEndian.Uint16(head[10:]) != 4+MaxNoteBytes || string(head[12:14]) != noteFieldID ||
		binary.LittleEndian.Uint16(head[14:]) != MaxNoteBytes {
		return nil, ErrNoNote
	}
	return bytes.TrimRight(head[noteOffset:], " "), nil
}

// ScanNotes returns the notes of a template's reports by their contents: an empty one where a file is damaged. It
// is nil if the template never had a report.
func (d *Dir) ScanNotes(id string) (map[string][]byte, error) {
	entries, err := d.ReadDir(scanReportsPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list stored scan reports: %w", err)
	}
	notes := map[string][]byte{}
	for _, e := range entries {
		content, ok := strings.CutSuffix(e.Name(), scanSuffix)
		if !ok || !isHexOfLength(content, 64) {
			continue
		}
		notes[content] = nil
		if note, err := d.readScanNote(id, content); err == nil {
			notes[content] = note
		}
	}
	return notes, nil
}

func (d *Dir) readScanNote(id, content string) ([]byte, error) {
	file, err := d.root.Open(scanReportPath(id, content))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readNote(file)
}

// RemoveScanReport removes the report about a content permanently; a missing one is not an error.
func (d *Dir) RemoveScanReport(id, content string) error {
	if !isHexOfLength(content, 64) {
		return fmt.Errorf("%q is not a content ID", content)
	}
	if err := d.RemoveShared("unscan", scanReportPath(id, content)); err != nil {
		return err
	}
	d.AnnounceStep("unscan.dirsync")
	if err := d.SyncDir(scanReportsPath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = d.root.Remove(scanReportsPath(id)) // fails while it has entries
	return nil
}

// PruneScanDrafts removes drafts that a crash left. No draft of the template may be in progress.
func (d *Dir) PruneScanDrafts(id string) error {
	entries, err := d.ReadDir(scanReportsPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list stored scan reports: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), tempSuffix) {
			if err := d.RemoveAll("tidy", path.Join(scanReportsPath(id), e.Name())); err != nil {
				return err
			}
		}
	}
	_ = d.root.Remove(scanReportsPath(id)) // fails while it has entries
	return nil
}

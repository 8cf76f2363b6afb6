package catalog

import (
	"context"
	"io/fs"
	"path"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
)

// Selection decides which files a scan of a tree reads before there is a tree, for file systems that keep content
// while they read an archive once. It is safe for concurrent use: what it reads has the bounds of one scan.
type Selection struct{ run *scanRun }

// CompanionReader is an extractor that also reads other files than those that it is called for, such as lists of
// files.
type CompanionReader interface{ ReadsCompanion(path string) bool }

// NewSelection creates one.
func NewSelection(extractors []Extractor) *Selection {
	return &Selection{&scanRun{
		patterns: newPatternTable(extractors), options: Options{FileTimeout: time.Minute},
		memoryBudget: semaphore.NewWeighted(memoryBudgetBytes),
	}}
}

// Wants reports whether a scan reads a regular file, and whether it reads only parts of it. It is a guess: a scan
// may read others.
func (s *Selection) Wants(name string, info fs.FileInfo) (isWanted, isPartial bool) {
	by := s.run.patterns.matchFile(name, info)
	if len(by) == 0 {
		return slices.ContainsFunc(s.run.patterns.companionReaders, func(c CompanionReader) bool {
			return c.ReadsCompanion(name)
		}), false
	}
	return true, !slices.ContainsFunc(by, func(i int) bool {
		return !s.run.patterns.extractors[i].Patterns().PartialRead
	})
}

// Probe reads what a scan reads of a file, which it closes. What is found in it is dropped.
func (s *Selection) Probe(ctx context.Context, name string, f fs.File) {
	info, err := f.Stat()
	if err != nil {
		return
	}
	s.run.extractFile(ctx, singleFile{name, f},
		wantedFile{path: name, extractorIndexes: s.run.patterns.matchFile(name, info)})
}

// singleFile is a tree with one file.
type singleFile struct {
	name string
	file fs.File
}

func (s singleFile) Open(name string) (fs.File, error) {
	if name != s.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return s.file, nil
}

// matchFile returns the extractors that want a regular file.
func (c *patternTable) matchFile(name string, info fs.FileInfo) []int {
	base := path.Base(name)
	by := c.matchName(name, base, false)
	b := &dirResult{walk: &walk{patterns: c}}
	if b.mayBeProgram(name, fs.FileInfoToDirEntry(namedInfo{info, base})) {
		by = append(by, c.programExtractors...)
	}
	return by
}

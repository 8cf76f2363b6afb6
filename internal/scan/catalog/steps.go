package catalog

import (
	"bytes"
	"cmp"
	"context"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync/atomic"
)

// Tracked is a file system that reports what each step of a scan reads, and whether that is unchanged since an
// earlier scan. Its methods are safe for concurrent use, except for Open, ReadDir and Stat of a view.
type Tracked interface {
	fs.FS
	// Track returns a view of the same files that records what is read with it. One goroutine uses it.
	Track() Tracked
	// Reads returns, encoded, what was read with a view; nil when that cannot be compared later.
	Reads() []byte
	// Unchanged reports whether what Reads returned in an earlier scan reads as it did then.
	Unchanged(reads []byte) bool
	// Entry returns the entry of a reference. What it reads is read with the receiver.
	Entry(ref EntryRef) fs.DirEntry
	// Ref returns the reference of an entry of this file system.
	Ref(e fs.DirEntry) (EntryRef, error)
}

// EntryRef identifies an entry of a directory, also in a later scan.
type EntryRef struct {
	Name   string
	Inode  uint64
	Parent uint64 // inode of the directory
	Type   fs.FileMode
}

// Steps are the steps of a scan with what they read and found: one for each directory and each wanted file.
// A scan that gets those of an earlier one repeats only steps whose data changed, and updates them. They are
// valid for one tree, one version of this program, equal Options.Extractors, no Options.SkipDir and no
// Options.Exclude.
type Steps struct {
	tree Tracked
	root dirStep
	used atomic.Int64 // bytes that the steps take, about
}

// NewSteps returns no steps of a tree, for its first scan.
func NewSteps(tree Tracked) *Steps { return &Steps{tree: tree} }

// dirStep is the listing of a directory. Its files and dirs are also known when it has to be listed again.
type dirStep struct {
	ref       EntryRef
	reads     []byte // nil: it is listed again
	fileCount int
	files     []*fileStep // wanted ones
	dirs      []*dirStep
}

// fileStep is the extraction of a file.
type fileStep struct {
	ref        EntryRef
	extractors []byte // indexes
	reads      []byte // nil: it is read again
	found      []byte // encoded outcome
}

const (
	// maxStepsBytes limits the steps of one tree in memory. Those of a larger tree are not kept.
	maxStepsBytes = 256 << 20
	// stepBytes is about the size of a step without its texts.
	stepBytes = 192
)

// Complete reports whether all steps were recorded, so that they can be kept.
func (s *Steps) Complete() bool { return s.used.Load() <= maxStepsBytes }

// grow accounts for the memory of steps, and reports whether there may be more.
func (s *Steps) grow(bytes int) bool { return s.used.Add(int64(bytes)) <= maxStepsBytes }

func (d *dirStep) entry() EntryRef { return d.ref }

func (f *fileStep) entry() EntryRef { return f.ref }

// findStep returns the step of an entry in a list that is in the order of names; nil when it is not there.
func findStep[S any, P interface {
	*S
	entry() EntryRef
}](list []P, ref EntryRef) P {
	k, ok := slices.BinarySearchFunc(list, ref.Name,
		func(s P, name string) int { return cmp.Compare(s.entry().Name, name) })
	if !ok || list[k].entry() != ref {
		return nil
	}
	return list[k]
}

// listStep lists a directory, or takes the listing of an earlier scan.
func (b *dirResult) listStep(f dirTask) {
	s, tree := f.step, b.walk.steps.tree
	if s.reads != nil && tree.Unchanged(s.reads) {
		b.reuse(f)
		return
	}
	view := tree.Track()
	b.step, b.oldFiles, b.oldDirs = s, s.files, s.dirs
	s.reads, s.fileCount, s.files, s.dirs = nil, 0, nil, nil
	if f.entry != nil {
		f.entry = view.Entry(s.ref)
	}
	b.list(view, f)
	if len(b.warnings)+len(b.skipped) == 0 {
		s.reads = view.Reads()
	}
	s.fileCount = b.fileCount
	b.step, b.oldFiles, b.oldDirs = nil, nil, nil
	if !b.walk.steps.grow(len(s.reads)) {
		s.reads = nil
	}
}

// reuse takes the listing of a directory from an earlier scan.
func (b *dirResult) reuse(f dirTask) {
	at := f.path()
	b.fileCount += f.step.fileCount
	for _, s := range f.step.files {
		b.addFileStep(s, at)
	}
	for _, s := range f.step.dirs {
		if !b.walk.visit(s.ref.Inode) {
			b.warnings = append(b.warnings, alreadyRead(joinPath(at, s.ref.Name)))
			continue
		}
		b.dirs = append(b.dirs,
			dirTask{parent: at, entry: b.walk.steps.tree.Entry(s.ref), depth: f.depth + 1, step: s})
	}
}

// refOf returns the reference of an entry in the listing that is being read, whose name keeps no other in memory.
func (b *dirResult) refOf(e fs.DirEntry) (EntryRef, error) {
	ref, err := b.walk.steps.tree.Ref(e)
	ref.Name = strings.Clone(ref.Name)
	return ref, err
}

// addDirStep adds a directory of the listing that is being read.
func (b *dirResult) addDirStep(f dirTask) {
	ref, err := b.refOf(f.entry)
	if err != nil {
		b.dirs = append(b.dirs, f)
		return
	}
	f.entry = b.walk.steps.tree.Entry(ref)
	if b.walk.steps.grow(stepBytes + len(ref.Name)) {
		if f.step = findStep(b.oldDirs, ref); f.step == nil {
			f.step = &dirStep{ref: ref}
		}
		b.step.ref.Inode = ref.Parent
		b.step.dirs = append(b.step.dirs, f.step)
	}
	b.dirs = append(b.dirs, f)
}

// addWantedStep adds a wanted file of the listing that is being read.
func (b *dirResult) addWantedStep(w wantedFile) {
	ref, err := b.refOf(w.entry)
	if err != nil {
		b.wantedFiles = append(b.wantedFiles, w)
		return
	}
	w.entry = b.walk.steps.tree.Entry(ref)
	if !b.walk.steps.grow(stepBytes + len(ref.Name)) {
		b.wantedFiles = append(b.wantedFiles, w)
		return
	}
	extractors := make([]byte, len(w.extractorIndexes))
	for i, k := range w.extractorIndexes {
		extractors[i] = byte(k)
	}
	s := findStep(b.oldFiles, ref)
	if s == nil || !bytes.Equal(s.extractors, extractors) {
		s = &fileStep{ref: ref, extractors: extractors}
	}
	b.step.ref.Inode = ref.Parent
	b.step.files = append(b.step.files, s)
	b.addFileStep(s, path.Dir(w.path))
}

// addFileStep adds a wanted file of a directory, whose packages are taken from an earlier scan if it is unchanged.
func (b *dirResult) addFileStep(s *fileStep, dir string) {
	tree := b.walk.steps.tree
	w := wantedFile{isSymlink: s.ref.Type&fs.ModeSymlink != 0, step: s}
	unchanged := s.reads != nil && tree.Unchanged(s.reads)
	if unchanged && len(s.found) == 0 { // as most programs
		b.kept = append(b.kept, keptFile{file: w})
		return
	}
	w.path = joinPath(dir, s.ref.Name)
	if unchanged {
		if o, ok := decodeOutcome(s.found, displayPath(w.path)); ok {
			b.kept = append(b.kept, keptFile{w, o})
			return
		}
	}
	for _, k := range s.extractors {
		if int(k) < len(b.walk.patterns.extractors) {
			w.extractorIndexes = append(w.extractorIndexes, int(k))
		}
	}
	w.entry = tree.Entry(s.ref)
	b.wantedFiles = append(b.wantedFiles, w)
}

// keptFile is a file whose outcome is that of an earlier scan.
type keptFile struct {
	file    wantedFile
	outcome fileOutcome
}

// readStep extracts the packages of a file, and records that.
func (r *scanRun) readStep(ctx context.Context, w wantedFile) fileOutcome {
	steps := r.options.Steps
	view := steps.tree.Track()
	w.entry = view.Entry(w.step.ref)
	o := r.extractFile(ctx, view, w)
	w.step.reads, w.step.found = nil, nil
	if slices.ContainsFunc(o.warnings, isDataMissing) {
		return o
	}
	reads, found := view.Reads(), encodeOutcome(o, displayPath(w.path))
	if reads != nil && steps.grow(len(reads)+len(found)) {
		w.step.reads, w.step.found = reads, found
	}
	return o
}

package unread

import "slices"

// File is a file or directory that a scan could not read.
type File struct {
	Path    string `json:"path"` // absolute
	Message string `json:"message"`
	Stamp   uint64 `json:"stamp,omitempty"` // of the file; 0: of a directory
	Number  uint64 `json:"number"`          // of this event, set by Add
}

// maxFiles limits the files that are named.
const maxFiles = 200

// List is a list of unread files in the order of their numbers. It is not safe for concurrent use.
type List struct {
	Files   []File `json:"files,omitempty"`
	Last    uint64 `json:"last,omitempty"`    // number of the last event
	Dropped uint64 `json:"dropped,omitempty"` // number of the last event that is not in Files because of others
}

// Add records that a file could not be read, and reports whether the list changed. A file that did not change keeps its
// number.
func (l *List) Add(f File) bool {
	at := slices.IndexFunc(l.Files, func(other File) bool { return other.Path == f.Path })
	switch {
	case at >= 0 && l.Files[at].Stamp == f.Stamp:
		return false
	case at >= 0:
		l.Files = slices.Delete(l.Files, at, at+1)
	case len(l.Files) == maxFiles:
		l.Dropped = l.Files[0].Number
		l.Files = slices.Delete(l.Files, 0, 1)
	}
	l.Last++
	f.Number = l.Last
	l.Files = append(l.Files, f)
	return true
}

// Remove removes the files that a function names, and reports whether the list changed.
func (l *List) Remove(f func(File) bool) bool {
	before := len(l.Files)
	l.Files = slices.DeleteFunc(l.Files, f)
	return len(l.Files) != before
}

// Since returns why packages may be missing that came after an event, of the paths that a function names; "" when
// nothing is known to be missing.
func (l *List) Since(number uint64, within func(path string) bool) string {
	for _, f := range l.Files {
		if f.Number > number && within(f.Path) {
			return "not everything could be read: " + f.Path + ": " + f.Message
		}
	}
	if l.Dropped > number {
		return "not everything could be read: too many files to name them"
	}
	return ""
}

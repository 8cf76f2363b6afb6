package blob

import (
	"errors"
	"os"
)

// FileSource reads a file and, where the file system tells, skips its holes.
type FileSource struct {
	*os.File
	Size int64
}

var _ Source = FileSource{}

// NextData asks the file system for the next range that is no hole.
func (s FileSource) NextData(off int64) (start, end int64, err error) {
	start, end, err = seekData(s.File, off, s.Size)
	if errors.Is(err, errors.ErrUnsupported) {
		return off, s.Size, nil
	}
	return start, end, err
}

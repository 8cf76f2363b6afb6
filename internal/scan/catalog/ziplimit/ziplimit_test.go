package ziplimit

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// archiveOf returns an archive of so many empty files, each with a comment.
func archiveOf(t *testing.T, files int, comment string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := range files {
		if _, err := z.CreateHeader(&zip.FileHeader{Name: fmt.Sprint(i), Comment: comment}); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestReserve: an archive is not opened without the memory for its list of files.
func TestReserve(t *testing.T) {
	refused := errors.New("no memory")
	archive := archiveOf(t, MaxFiles, "")
	_, err := Open(bytes.NewReader(archive), int64(len(archive)), func() error { return refused })
	if !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
}

// TestBounds opens the largest permitted archive, and none beyond, whatever its last record states
// about its list.
func TestBounds(t *testing.T) {
	long := strings.Repeat("x", 1<<16-1)
	lies := archiveOf(t, (maxDirectoryBytes+2<<20)/len(long), long) // a list larger than is read
	last := lies[len(lies)-endRecordSize:]
	binary.LittleEndian.PutUint16(last[8:], 1)
	binary.LittleEndian.PutUint16(last[10:], 1)
	binary.LittleEndian.PutUint32(last[12:], 100)
	most := archiveOf(t, MaxFiles, "") // with a record of 64 bits, which has their number
	more := bytes.Clone(most)
	record := more[len(more)-endRecordSize-zip64LocatorSize-zip64EndSize:]
	binary.LittleEndian.PutUint64(record[24:], MaxFiles+1)
	binary.LittleEndian.PutUint64(record[32:], MaxFiles+1)
	for name, tt := range map[string]struct {
		archive []byte
		files   int   // that are listed
		err     error // nil: it is opened
	}{
		"one file":                   {archiveOf(t, 1, ""), 1, nil},
		"none":                       {archiveOf(t, 0, ""), 0, nil},
		"the most":                   {most, MaxFiles, nil},
		"one more":                   {more, 0, ErrTooMany},
		"few, with a long list":      {archiveOf(t, maxDirectoryBytes/len(long)+1, long), 0, ErrTooMany},
		"a list longer than it says": {lies, 0, ErrTooMany},
		"no archive":                 {[]byte("PK"), 0, zip.ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			reserved := false
			z, err := Open(bytes.NewReader(tt.archive), int64(len(tt.archive)), func() error {
				reserved = true
				return nil
			})
			if large := tt.files == MaxFiles; reserved != large {
				t.Errorf("memory was reserved: %v", reserved)
			}
			if !errors.Is(err, tt.err) {
				t.Fatalf("%v, want %v", err, tt.err)
			}
			if tt.err == nil && len(z.File) != tt.files {
				t.Errorf("%d files, want %d", len(z.File), tt.files)
			}
		})
	}
}

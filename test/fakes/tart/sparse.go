package main

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copySparse copies a file without its holes.
func copySparse(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	for _, r := range dataRanges(in, info.Size()) {
		data := io.NewSectionReader(in, r.begin, r.end-r.begin)
		if _, err := io.Copy(io.NewOffsetWriter(out, r.begin), data); err != nil {
			return errors.Join(err, out.Close())
		}
	}
	return errors.Join(out.Truncate(info.Size()), out.Close())
}

// byteRange is a part of a file.
type byteRange struct{ begin, end int64 }

// dataRanges returns the parts of a file that are not holes.
func dataRanges(f *os.File, size int64) (out []byteRange) {
	for at := int64(0); at < size; {
		begin, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // only a hole follows
			return out
		}
		if err != nil { // a file system without holes
			return append(out, byteRange{at, size})
		}
		end, err := f.Seek(begin, unix.SEEK_HOLE)
		if err != nil {
			end = size
		}
		out, at = append(out, byteRange{begin, end}), end
	}
	return out
}

// allocatedBytes returns how much of a file is not holes.
func allocatedBytes(path string) (n int64) {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	for _, r := range dataRanges(f, info.Size()) {
		n += r.end - r.begin
	}
	return n
}
